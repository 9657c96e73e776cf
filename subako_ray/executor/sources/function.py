"""Function source: each call runs in a fresh jail, and its reply is data."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, assert_never

import mcp_types
from pydantic import ValidationError

from subako_ray.executor.source import (
    Listing,
    SourceCall,
    SourceUnavailableError,
    offered_from_plan,
)
from subako_ray.executor.sources.mcp_result import outcome_of
from subako_ray.sandbox.function import (
    Answered,
    Broken,
    FunctionLimits,
    FunctionRunner,
    PackageFolder,
    Refused,
)
from subako_ray.sandbox.spec import JailUnavailable
from subako_ray.schema import limits
from subako_ray.schema.outcome import Outcome, OutcomeStatus, ended
from subako_ray.schema.plan import FunctionPlanGrant


class FunctionSource:
    """One function package of a session."""

    kind: Literal["fn"] = "fn"

    def __init__(self, grant: FunctionPlanGrant, folder: Path, runner: FunctionRunner) -> None:
        """Makes the source of one package.

        Args:
            grant: of the plan.
            folder: the unpacked bundle.
            runner: leases a jail for each call.
        """
        self.name = grant.name
        self._grant = grant
        self._runner = runner
        self._package = PackageFolder(
            path=folder,
            name=grant.name,
            command=grant.command,
            protocol_version=grant.protocol_version,
        )
        self._limits = FunctionLimits(
            timeout_seconds=grant.limits.timeout_seconds,
            memory_mib=grant.limits.memory_mib,
            processes=grant.limits.processes,
            output_bytes=limits.REPLY_BYTES,
        )

    async def open(self) -> Listing:
        """Lists the tools that the plan has of the package; nothing is run."""
        return offered_from_plan(self._grant.tools)

    async def credential(self) -> str | None:
        """A function without origins takes no credential."""
        return None

    async def call(self, call: SourceCall) -> Outcome:
        """Runs the call in a jail of its own; cancelling it kills the jail."""
        try:
            reply = await self._runner.call(
                self._package, call.tool, call.argument_bytes, self._limits
            )
        except JailUnavailable as error:
            raise SourceUnavailableError(f"function `{self.name}`: {error.message}") from None
        match reply:
            case Answered(result=result):
                return self._outcome(result)
            case Refused(message=message):
                return ended(
                    "tool_failed", "rejected", f"function `{self.name}` says: {message[:2000]}"
                )
            case Broken():
                return ended(_status(reply), reply.reason, reply.detail)
        assert_never(reply)

    async def close(self) -> None:
        """Holds nothing between calls."""

    def _outcome(self, result: dict[str, object]) -> Outcome:
        try:
            return outcome_of(mcp_types.CallToolResult.model_validate(result, by_name=False))
        except (ValidationError, RecursionError):
            return ended(
                "tool_failed", "bad_result", f"function `{self.name}` answered with no valid result"
            )


def _status(broken: Broken) -> OutcomeStatus:
    match broken.reason:
        case "timed_out":
            return "timed_out"
        case "out_of_memory" | "output_limit":
            return "limit_exceeded"
        case "jail_failed":
            return "source_unavailable" if not broken.may_have_run else "unknown"
        case "supervisor_lost":
            return "unknown" if broken.may_have_run else "source_unavailable"
        case "bad_output" | "exited":
            return "tool_failed"
    assert_never(broken.reason)
