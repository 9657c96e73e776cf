"""What a tool source is to the pipeline: it lists tools, says whose credential, and runs a call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from subako_ray.schema.events import LeftOut
from subako_ray.schema.names import Kind
from subako_ray.schema.outcome import Outcome
from subako_ray.schema.plan import PlanTool


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool's descriptor as its source reports it."""

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a source has now, and what it named that cannot be used."""

    tools: tuple[OfferedTool, ...]
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """What a person approved beside the arguments: the credential (or none) the call uses."""

    credential: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCall:
    """One call, as it was stored before dispatch.

    Attributes:
        call_id: of the session.
        tool: the exact name the source reported.
        arguments: the arguments as values.
        argument_bytes: the canonical bytes that were hashed and shown; what is sent.
        approved: set when a person approved the call; a source must then use that credential or
            refuse.
    """

    call_id: str
    tool: str
    arguments: dict[str, Any] = field(repr=False)
    argument_bytes: bytes = field(repr=False)
    approved: Approved | None = None


class SourceUnavailableError(Exception):
    """A source cannot be reached or used now; nothing was run. Its message names the source."""


class Source(Protocol):
    """One grant's source of tools in one session."""

    @property
    def kind(self) -> Kind:
        """The grant's kind."""

    @property
    def name(self) -> str:
        """The grant's name."""

    async def open(self) -> Listing:
        """Makes the source ready and lists its tools.

        Raises:
            SourceUnavailableError: when it cannot be asked; other sources go on.
        """

    async def credential(self) -> str | None:
        """Identity of the credential a call would use now, or None."""

    async def call(self, call: SourceCall) -> Outcome:
        """Runs one call. Its failure is an outcome.

        Raises:
            SourceUnavailableError: when it is certain that nothing was run.
        """

    async def close(self) -> None:
        """Lets go of everything the source holds; never raises."""


def label(source: Source) -> str:
    """Names a source as the log and the product do, e.g. `mcp:orders`."""
    return f"{source.kind}:{source.name}"


def offered_from_plan(tools: tuple[PlanTool, ...]) -> Listing:
    """Lists tools whose descriptors the plan holds."""
    return Listing(
        tools=tuple(
            OfferedTool(
                name=tool.name,
                title=tool.title,
                description=tool.description,
                input_schema=tool.input_schema if tool.input_schema is not None else {},
                output_schema=tool.output_schema,
                annotations=tool.annotations,
            )
            for tool in tools
        )
    )
