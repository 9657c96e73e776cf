"""The tool plan: what the compiler emits and the executor runs, immutable and content-addressed.

A plan is written in canonical form (`schema.canonical`) with its `digest` over the rest, so equal
plans are equal bytes. It holds everything a session needs; no manifest is read again.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from subako_ray.schema.canonical import CanonicalError, canonical_bytes, digest, parse_json
from subako_ray.schema.manifest import LatestSkill, Model, PinnedSkill
from subako_ray.schema.names import Kind, Policy, QualifiedName

PLAN_FORMAT: Final = "subako.plan/1"

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class PlanError(ValueError):
    """Bytes that were given as a plan are none, or were changed after compiling."""


class PlanPart(BaseModel):
    """A part of the plan: frozen, and nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PlanTool(PlanPart):
    """One tool that the plan knows by name.

    An MCP tool named only by a policy of the manifest has no descriptor: `description`,
    `input_schema` and `pin` are null until a server reports it.
    """

    name: str
    qualified_name: str
    policy: Policy
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None
    pin: Digest | None = None


class McpPlanGrant(PlanPart):
    """An MCP server. Tools it reports that `tools` does not name get `default_policy`."""

    kind: Literal["mcp"] = "mcp"
    name: str
    url: str
    default_policy: Policy
    on_drift: Policy
    tools: tuple[PlanTool, ...]


class BundledSkill(PlanPart):
    """A skill packed with the plan."""

    type: Literal["bundle"] = "bundle"
    bundle: Digest
    description: str
    files: tuple[str, ...]


class StoredSkillReference(PlanPart):
    """A skill of the product's skill store, carried as the config names it."""

    type: Literal["stored"] = "stored"
    skill_id: str
    version: Annotated[LatestSkill | PinnedSkill, Field(discriminator="type")]


class SkillPlanGrant(PlanPart):
    """A skill: a folder of text the model can read."""

    kind: Literal["skill"] = "skill"
    name: str
    source: Annotated[BundledSkill | StoredSkillReference, Field(discriminator="type")]
    tools: tuple[PlanTool, ...]


class PlanFunctionLimits(PlanPart):
    """What one call of a function may use; every limit explicit."""

    timeout_seconds: int
    memory_mib: int
    processes: int


class FunctionPlanGrant(PlanPart):
    """A function package: each call runs in a fresh jail."""

    kind: Literal["fn"] = "fn"
    name: str
    bundle: Digest
    command: tuple[str, ...]
    protocol_version: str | None
    default_policy: Policy
    on_drift: Policy
    origins: tuple[str, ...]
    limits: PlanFunctionLimits
    tools: tuple[PlanTool, ...]


class SandboxPlanGrant(PlanPart):
    """A Linux machine of the session's own."""

    kind: Literal["sandbox"] = "sandbox"
    name: str
    release: str
    network: Literal["none", "unrestricted"]
    default_policy: Policy
    tools: tuple[PlanTool, ...]


class BuiltinPlanGrant(PlanPart):
    """Tools that Subako itself answers."""

    kind: Literal["builtin"] = "builtin"
    name: str
    tools: tuple[PlanTool, ...]


PlanGrant: TypeAlias = (
    McpPlanGrant | SkillPlanGrant | FunctionPlanGrant | SandboxPlanGrant | BuiltinPlanGrant
)


class PlanApprovals(PlanPart):
    """How long a held call waits before it ends as denied."""

    expires_seconds: int


class Plan(PlanPart):
    """A compiled version. Grants are sorted by kind and name, tools by name."""

    format: Literal["subako.plan/1"] = PLAN_FORMAT
    digest: Digest
    agent: str | None
    model: Model
    model_provider_id: str | None
    system_prompt: str | None
    approvals: PlanApprovals
    grants: tuple[Annotated[PlanGrant, Field(discriminator="kind")], ...]

    def to_bytes(self) -> bytes:
        """Writes the plan in canonical form, one line with a newline at its end."""
        return canonical_bytes(self.model_dump(mode="json")) + b"\n"

    def grant(self, kind: Kind, name: str) -> PlanGrant | None:
        """Returns the grant of this kind and name, if the plan has it."""
        return next((g for g in self.grants if (g.kind, g.name) == (kind, name)), None)

    def bundles(self) -> frozenset[str]:
        """Digests of the bundles that a session of this plan needs."""
        found: set[str] = set()
        for grant in self.grants:
            match grant:
                case FunctionPlanGrant():
                    found.add(grant.bundle)
                case SkillPlanGrant(source=BundledSkill(bundle=bundle)):
                    found.add(bundle)
                case _:
                    pass
        return frozenset(found)


def seal_plan(
    *,
    agent: str | None,
    model: Model,
    model_provider_id: str | None,
    system_prompt: str | None,
    approvals: PlanApprovals,
    grants: tuple[PlanGrant, ...],
) -> Plan:
    """Makes a plan of its parts: sorts them and computes the digest."""
    ordered = tuple(sorted(grants, key=lambda grant: (grant.kind, grant.name)))
    draft = Plan(
        digest="sha256:" + "0" * 64,
        agent=agent,
        model=model,
        model_provider_id=model_provider_id,
        system_prompt=system_prompt,
        approvals=approvals,
        grants=ordered,
    )
    return draft.model_copy(update={"digest": _digest_of(draft.model_dump(mode="json"))})


def load_plan(data: bytes) -> Plan:
    """Reads a plan and checks that its digest is that of its content.

    Raises:
        PlanError: with one line saying what is wrong.
    """
    try:
        value = parse_json(data)
    except CanonicalError as error:
        raise PlanError(str(error)) from None
    if not isinstance(value, dict):
        raise PlanError("not a JSON object")
    if value.get("format") != PLAN_FORMAT:
        raise PlanError(f"its `format` is not `{PLAN_FORMAT}`")
    if value.get("digest") != _digest_of(value):
        raise PlanError("its digest is not that of its content: it was changed after compiling")
    try:
        # JSON has no tuples; strict types are kept for everything else.
        return Plan.model_validate_json(canonical_bytes(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise PlanError(f"`{place}`: {first['msg'].lower()}") from None


def plan_tool(
    kind: Kind,
    grant: str,
    name: str,
    policy: Policy,
    *,
    title: str | None = None,
    description: str | None = None,
    input_schema: dict[str, Any] | None = None,
    output_schema: dict[str, Any] | None = None,
    annotations: dict[str, Any] | None = None,
) -> PlanTool:
    """Makes the plan's entry of one tool, pinned when its descriptor is known."""
    known = input_schema is not None
    return PlanTool(
        name=name,
        qualified_name=str(QualifiedName(kind, grant, name)),
        policy=policy,
        title=title,
        description=description,
        input_schema=input_schema,
        output_schema=output_schema,
        annotations=annotations,
        pin=pin_of(name, description, input_schema, output_schema, annotations) if known else None,
    )


def pin_of(
    name: str,
    description: str | None,
    input_schema: dict[str, Any] | None,
    output_schema: dict[str, Any] | None,
    annotations: dict[str, Any] | None,
) -> str:
    """Digest of everything about a tool that changes what it means to a model or a reviewer."""
    return digest(
        canonical_bytes(
            {
                "name": name,
                "description": description,
                "input_schema": input_schema,
                "output_schema": output_schema,
                "annotations": annotations,
            }
        )
    )


def _digest_of(value: dict[str, Any]) -> str:
    return digest(canonical_bytes({key: item for key, item in value.items() if key != "digest"}))
