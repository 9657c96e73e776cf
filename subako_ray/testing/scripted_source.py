"""A tool source whose behaviour a test scripts, and which counts what was done to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

from subako_ray.executor.source import Listing, OfferedTool, SourceCall, SourceUnavailableError
from subako_ray.schema.names import Kind
from subako_ray.schema.outcome import Outcome, ended

Fault = Literal["unavailable", "unavailable_in_call", "breaks", "hangs"]


@dataclass(slots=True, kw_only=True)
class ScriptedSource:
    """Lists the tools it is given and answers every call with `answer`.

    Attributes:
        fault: switched on by name; None behaves.
        credential_id: what it says a call would use.
        calls: every call that reached it, in order.
        entered: set when a call has reached it.
    """

    name: str = "orders"
    kind: Kind = "mcp"
    tools: tuple[OfferedTool, ...] = ()
    answer: Outcome = field(default_factory=lambda: ended("succeeded", None, "done"))
    fault: Fault | None = None
    credential_id: str | None = None
    calls: list[SourceCall] = field(default_factory=list)
    cancelled: int = 0
    closed: int = 0
    entered: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self) -> Listing:
        """Lists the tools, or is unavailable."""
        if self.fault == "unavailable":
            raise SourceUnavailableError(f"server `{self.name}` cannot be reached")
        return Listing(tools=self.tools)

    async def credential(self) -> str | None:
        """Says which credential a call would use."""
        return self.credential_id

    async def call(self, call: SourceCall) -> Outcome:
        """Takes the call down and answers as scripted."""
        self.calls.append(call)
        self.entered.set()
        match self.fault:
            case "unavailable_in_call":
                raise SourceUnavailableError(f"server `{self.name}` cannot be reached")
            case "breaks":
                raise RuntimeError("a text that no log should hold")
            case "hangs":
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled += 1
                    raise
            case _:
                pass
        return self.answer

    async def close(self) -> None:
        """Counts."""
        self.closed += 1


def tool(name: str, **schema: Any) -> OfferedTool:
    """Makes a tool that takes an object of these properties, and nothing else with any."""
    return OfferedTool(
        name=name,
        description=f"The tool {name}.",
        input_schema={"type": "object", "properties": schema},
    )
