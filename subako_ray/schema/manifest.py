"""The version manifest as pydantic types, and the JSON Schema made from them.

Keys and values are those of the product's published agent config, so such a config is a manifest
unchanged; `agent`, `functions`, `builtins`, `approvals`, `on_drift`, skills by `path` and prompt
templates are ours. Lists may be absent, null or empty: all three mean none.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

from subako_ray.schema import limits
from subako_ray.schema.names import GRANT_NAME_PATTERN, Policy

SCHEMA_ID: Final = "https://subako.example/schema/version.schema.json"
SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

UUID_PATTERN: Final = (
    r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
)

GrantName = Annotated[
    str,
    StringConstraints(pattern=GRANT_NAME_PATTERN),
    Field(description="Lower-case letters, digits and hyphens, 1 to 32 of them."),
]
NonEmpty = Annotated[str, StringConstraints(min_length=1, max_length=2048)]
ToolName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
RelativePath = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Release = Annotated[str, StringConstraints(pattern=GRANT_NAME_PATTERN)]
Uuid = Annotated[str, StringConstraints(pattern=UUID_PATTERN)]
PositiveInteger = Annotated[int, Field(ge=1, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]


class ManifestPart(BaseModel):
    """A mapping of the manifest: unknown keys are errors, values are never converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Thinking(ManifestPart):
    """Extended thinking of an Anthropic model."""

    budget_tokens: Count


class AnthropicModel(ManifestPart):
    """A model that speaks the Anthropic Messages format."""

    format: Literal["anthropic"]
    model: NonEmpty
    max_tokens: Count
    thinking: Thinking | None = None


class OpenaiResponsesModel(ManifestPart):
    """A model that speaks the OpenAI Responses format."""

    format: Literal["openai_responses"]
    model: NonEmpty
    max_tokens: Count
    context_window: Count
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


Model = Annotated[AnthropicModel | OpenaiResponsesModel, Field(discriminator="format")]


class PromptTemplate(ManifestPart):
    """A system prompt rendered at compile time from a Jinja2 template."""

    template: RelativePath = Field(description="Path of the template, below the manifest's folder.")
    variables: dict[str, Any] | None = Field(default=None, description="What the template reads.")


class ToolPolicy(ManifestPart):
    """The policy of one tool, by the exact name its source reports."""

    name: ToolName
    policy: Policy


class McpGrant(ManifestPart):
    """An MCP server over HTTP."""

    name: GrantName
    url: NonEmpty
    default_policy: Policy = Field(description="Policy of every tool that `tools` does not name.")
    tools: list[ToolPolicy] | None = None
    on_drift: Policy | None = Field(
        default=None, description="Policy of a pinned tool that changed; `require_approval`."
    )


class LatestSkill(ManifestPart):
    """The newest version a stored skill has when a session is made."""

    type: Literal["latest"]


class PinnedSkill(ManifestPart):
    """One version of a stored skill."""

    type: Literal["pinned"]
    number: PositiveInteger


class PathSkill(ManifestPart):
    """A skill packed from a folder beside the manifest."""

    name: GrantName
    path: RelativePath


class StoredSkill(ManifestPart):
    """A skill of the product's skill store."""

    name: GrantName
    skill_id: Uuid
    version: Annotated[LatestSkill | PinnedSkill, Field(discriminator="type")]


def _skill_type(value: Any) -> str:
    """Says which skill an entry means; the tags are the names of the classes."""
    if isinstance(value, StoredSkill):
        return "StoredSkill"
    stored = isinstance(value, dict) and "skill_id" in value and "path" not in value
    return "StoredSkill" if stored else "PathSkill"


Skill = Annotated[
    Annotated[PathSkill, Tag("PathSkill")] | Annotated[StoredSkill, Tag("StoredSkill")],
    Discriminator(_skill_type),
]


class FunctionLimits(ManifestPart):
    """What one call of a function may use."""

    timeout_seconds: (
        Annotated[int, Field(ge=1, le=limits.FUNCTION_TIMEOUT_SECONDS_MAX, strict=True)] | None
    ) = None
    memory_mib: (
        Annotated[int, Field(ge=16, le=limits.FUNCTION_MEMORY_MIB_MAX, strict=True)] | None
    ) = None
    processes: Annotated[int, Field(ge=1, le=limits.FUNCTION_PROCESSES_MAX, strict=True)] | None = (
        None
    )


class FunctionGrant(ManifestPart):
    """A function package packed from a folder beside the manifest."""

    name: GrantName
    path: RelativePath
    default_policy: Policy
    tools: list[ToolPolicy] | None = None
    on_drift: Policy | None = None
    origins: list[NonEmpty] | None = Field(
        default=None, description="Origins it may reach; absent: no network at all."
    )
    limits: FunctionLimits | None = None


class PlatformEnvironment(ManifestPart):
    """A root file system that the deployment offers under a name."""

    type: Literal["platform"]
    release: Release


class Network(ManifestPart):
    """What a sandbox may reach."""

    type: Literal["none", "unrestricted"]


class SandboxGrant(ManifestPart):
    """A Linux machine of the session's own."""

    name: GrantName
    environment: PlatformEnvironment
    default_policy: Policy
    tools: list[ToolPolicy] | None = None
    network: Network | None = Field(default=None, description="Absent: unrestricted.")


class Approvals(ManifestPart):
    """How long a held call waits for a person."""

    expires_seconds: Annotated[
        int, Field(ge=1, le=limits.APPROVAL_EXPIRES_SECONDS_MAX, strict=True)
    ]


def _prompt_type(value: Any) -> str:
    return "PromptTemplate" if isinstance(value, dict | PromptTemplate) else "str"


SystemPrompt = Annotated[
    Annotated[str, StringConstraints(max_length=limits.SYSTEM_PROMPT_CHARACTERS), Tag("str")]
    | Annotated[PromptTemplate, Tag("PromptTemplate")],
    Discriminator(_prompt_type),
]


class Manifest(ManifestPart):
    """What an agent may do: its model, its prompt and the grants its tools come from."""

    agent: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    model: Model
    model_provider_id: Uuid | None = None
    system_prompt: SystemPrompt | None = None
    mcp: list[McpGrant] | None = None
    skills: list[Skill] | None = None
    functions: list[FunctionGrant] | None = None
    sandboxes: list[SandboxGrant] | None = None
    builtins: list[Literal["ask_user", "session"]] | None = None
    approvals: Approvals | None = None


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema (2020-12) of a manifest, for editors, CI and the compiler."""
    schema = Manifest.model_json_schema(by_alias=True)
    return {
        "$schema": SCHEMA_DIALECT,
        "$id": SCHEMA_ID,
        **schema,
        "title": "Subako version manifest",
    }
