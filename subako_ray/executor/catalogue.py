"""A session's one catalogue: every tool it knows, with policy, version and availability.

Built from the plan and what the sources list. Policy, validation, approvals and whoever shows
tools to a model read it; there is no second idea of which tools exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, assert_never

from subako_ray.executor.source import Listing, OfferedTool, Source, label
from subako_ray.schema import limits
from subako_ray.schema.canonical import CanonicalError
from subako_ray.schema.events import CatalogueChanged, CatalogueTool, LeftOut, SourceState
from subako_ray.schema.foreign_schema import SchemaNotUsableError, SchemaValidator
from subako_ray.schema.names import Policy, QualifiedName, misfit
from subako_ray.schema.plan import (
    BuiltinPlanGrant,
    FunctionPlanGrant,
    McpPlanGrant,
    PlanGrant,
    SandboxPlanGrant,
    SkillPlanGrant,
    pin_of,
)

_SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One tool that can be found by its qualified name.

    Attributes:
        version: digest of the descriptor; what an approval is bound to.
        validator: checks arguments against the input schema.
    """

    name: QualifiedName
    tool: OfferedTool
    policy: Policy
    version: str
    source: Source
    validator: SchemaValidator

    @property
    def offered(self) -> bool:
        """Whether the engine is shown the tool."""
        return self.policy != "deny"


class Catalogue:
    """The tools of one session, by qualified name."""

    def __init__(self, model_format: str) -> None:
        """Starts empty.

        Args:
            model_format: the plan's, whose limits on tool names apply.
        """
        self._model_format = model_format
        self._entries: dict[str, CatalogueEntry] = {}
        self._left_out: list[LeftOut] = []
        self._unavailable: list[SourceState] = []
        self._denied: set[str] = set()
        self._silent: list[CatalogueTool] = []

    def find(self, name: str) -> CatalogueEntry | None:
        """Returns the tool of exactly this qualified name, denied ones included."""
        return self._entries.get(name)

    def is_denied(self, name: str) -> bool:
        """Whether the plan denies this exact name, even where its source could not be asked."""
        entry = self._entries.get(name)
        return name in self._denied or (entry is not None and entry.policy == "deny")

    def unavailable_reason(self, source_label: str) -> str | None:
        """Why the source (`mcp:orders`) has no tools here, or None when it was listed."""
        return next((s.reason for s in self._unavailable if s.source == source_label), None)

    def offered(self) -> list[CatalogueEntry]:
        """What the engine is shown, sorted by name."""
        return [entry for _, entry in sorted(self._entries.items()) if entry.offered]

    def add_grant(self, grant: PlanGrant, source: Source, listing: Listing) -> None:
        """Takes in what the source of a plan's grant lists, under the grant's policies."""
        policies = {tool.name: tool.policy for tool in grant.tools}
        self._add(source, listing, policies, default_policy(grant))

    def add_client(self, source: Source, listing: Listing) -> None:
        """Takes in a client's tools; having registered them was the decision."""
        self._add(source, listing, {}, "allow")

    def remove_source(self, source: Source) -> None:
        """Forgets every tool of a source that is gone."""
        gone = [name for name, entry in self._entries.items() if entry.source is source]
        for name in gone:
            del self._entries[name]

    def add_unavailable(self, grant: PlanGrant, source: Source, reason: str) -> None:
        """Notes that a source could not be asked; what the plan denies stays denied."""
        self._unavailable.append(SourceState(source=label(source), reason=reason))
        self._denied |= {tool.qualified_name for tool in grant.tools if tool.policy == "deny"}
        self._silent += [
            CatalogueTool(
                name=tool.qualified_name,
                kind=grant.kind,
                grant=grant.name,
                tool=tool.name,
                policy=tool.policy,
                version=tool.pin,
                offered=False,
                unavailable=reason,
            )
            for tool in grant.tools
        ]

    def event(self) -> CatalogueChanged:
        """The whole catalogue as an event."""
        listed = [
            CatalogueTool(
                name=name,
                kind=entry.name.kind,
                grant=entry.name.grant,
                tool=entry.name.tool,
                policy=entry.policy,
                version=entry.version,
                offered=entry.offered,
            )
            for name, entry in self._entries.items()
        ]
        return CatalogueChanged(
            tools=tuple(sorted([*listed, *self._silent], key=lambda tool: tool.name)),
            left_out=tuple(self._left_out),
            unavailable=tuple(self._unavailable),
        )

    def _add(
        self, source: Source, listing: Listing, policies: dict[str, Policy], default: Policy
    ) -> None:
        self._left_out.extend(listing.left_out)
        for tool in self._unique(source, listing.tools):
            name = QualifiedName(source.kind, source.name, tool.name)
            reason = misfit(str(name), self._model_format)
            if reason is not None:
                self._leave_out(source, tool.name, reason)
                continue
            try:
                validator = SchemaValidator(tool.input_schema)
                version = pin_of(
                    tool.name,
                    tool.description,
                    tool.input_schema,
                    tool.output_schema,
                    tool.annotations,
                )
            except SchemaNotUsableError as error:
                self._leave_out(source, tool.name, f"its input schema {error}")
                continue
            except CanonicalError as error:
                self._leave_out(source, tool.name, f"descriptor: {error}")
                continue
            self._entries[str(name)] = CatalogueEntry(
                name=name,
                tool=tool,
                policy=policies.get(tool.name, default),
                version=version,
                source=source,
                validator=validator,
            )

    def _unique(self, source: Source, tools: Iterable[OfferedTool]) -> list[OfferedTool]:
        listed = list(tools)
        if len(listed) > limits.TOOLS_PER_GRANT:
            over = listed[limits.TOOLS_PER_GRANT :]
            listed = listed[: limits.TOOLS_PER_GRANT]
            for tool in over:
                self._leave_out(source, tool.name, f"over {limits.TOOLS_PER_GRANT} tools")
        counts = Counter(tool.name for tool in listed)
        for name, count in counts.items():
            if count > 1:
                self._leave_out(source, name, f"listed {count} times")
        return [tool for tool in listed if counts[tool.name] == 1]

    def _leave_out(self, source: Source, tool: str, reason: str) -> None:
        # A lone surrogate has no UTF-8 form, and a name may have megabytes.
        shown = tool[:_SHOWN_CHARACTERS].encode("utf-8", "replace").decode()
        self._left_out.append(LeftOut(source=label(source), tool=shown, reason=reason))


def default_policy(grant: PlanGrant) -> Policy:
    """The policy of a tool that the grant does not name; granting a skill or built-in allows it."""
    match grant:
        case McpPlanGrant() | FunctionPlanGrant() | SandboxPlanGrant():
            return grant.default_policy
        case SkillPlanGrant() | BuiltinPlanGrant():
            return "allow"
    assert_never(grant)
