"""Sandbox source: a Linux machine of the session's own that keeps its files and processes."""

from __future__ import annotations

import asyncio
from typing import Literal, assert_never

from subako_ray.executor.sandbox_host import ExecFailed, ExecRequest, Sandboxes
from subako_ray.executor.session_log import SessionLog
from subako_ray.executor.source import (
    Listing,
    SourceCall,
    SourceUnavailableError,
    offered_from_plan,
)
from subako_ray.sandbox.machine import ExecResult
from subako_ray.schema import limits
from subako_ray.schema.events import SandboxChanged
from subako_ray.schema.outcome import Outcome, TextBlock, ended
from subako_ray.schema.plan import SandboxPlanGrant


class SandboxSource:
    """One sandbox of a session; the first `exec` provisions it."""

    kind: Literal["sandbox"] = "sandbox"

    def __init__(
        self, grant: SandboxPlanGrant, session_id: str, sandboxes: Sandboxes, log: SessionLog
    ) -> None:
        self.name = grant.name
        self._grant = grant
        self._session_id = session_id
        self._sandboxes = sandboxes
        self._log = log
        self._lost = False

    async def open(self) -> Listing:
        """Lists the tools the plan was compiled with; nothing is started."""
        return offered_from_plan(self._grant.tools)

    async def credential(self) -> str | None:
        """A sandbox without network takes no credential."""
        return None

    async def call(self, call: SourceCall) -> Outcome:
        """Runs a command; cancelling the call kills that command's processes only."""
        await self._provision()
        request = ExecRequest(
            session_id=self._session_id,
            name=self.name,
            call_id=call.call_id,
            command=call.arguments["command"],
            timeout_seconds=call.arguments.get(
                "timeout_seconds", limits.SANDBOX_EXEC_TIMEOUT_SECONDS
            ),
        )
        try:
            reply = await self._sandboxes.exec(request)
        except asyncio.CancelledError:
            await asyncio.shield(self._sandboxes.cancel(call.call_id))
            raise
        match reply:
            case ExecResult():
                return exec_outcome(reply)
            case ExecFailed(kind="unavailable", message=message):
                raise SourceUnavailableError(f"sandbox `{self.name}`: {message}")
            case ExecFailed(kind="lost", message=message):
                self._lost = True
                self._log.append(SandboxChanged(name=self.name, status="failed", detail=message))
                return ended(
                    "unknown",
                    "sandbox_lost",
                    f"sandbox `{self.name}` was lost with its files while the command ran:"
                    f" {message}",
                )
            case ExecFailed(message=message):
                return ended("cancelled", "may_have_run", message)
        assert_never(reply)

    async def close(self) -> None:
        """Ends the sandbox; the session's end is the end of its files."""

    async def _provision(self) -> None:
        reply = await self._sandboxes.start(self._session_id, self.name)
        match reply:
            case "running":
                return
            case "started":
                detail = "a new sandbox; the files of the last one are lost" if self._lost else None
                self._lost = False
                self._log.append(SandboxChanged(name=self.name, status="running", detail=detail))
            case ExecFailed(message=message):
                self._log.append(SandboxChanged(name=self.name, status="failed", detail=message))
                raise SourceUnavailableError(f"sandbox `{self.name}`: {message}")


def exec_outcome(result: ExecResult) -> Outcome:
    """Tells a command's result to the model: what it wrote, how it ended, what was cut."""
    stdout = result.stdout.decode("utf-8", "replace")
    stderr = result.stderr.decode("utf-8", "replace")
    lines = [stdout.rstrip("\n")] if stdout else []
    if result.stdout_cut_bytes:
        lines.append(f"[stdout cut: {result.stdout_cut_bytes} bytes more]")
    if stderr:
        lines += ["[stderr]", stderr.rstrip("\n")]
    if result.stderr_cut_bytes:
        lines.append(f"[stderr cut: {result.stderr_cut_bytes} bytes more]")
    if result.timed_out:
        lines.append(f"[killed after {result.duration_seconds:.1f} s]")
    elif result.signal is not None:
        lines.append(f"[killed by {result.signal}]")
    elif result.exit_code != 0 or not lines:
        lines.append(f"[exit code {result.exit_code}]")
    return Outcome(
        status="timed_out" if result.timed_out else "succeeded",
        reason=None,
        content=(TextBlock(text="\n".join(lines)),),
        structured={
            "exit_code": result.exit_code,
            "signal": result.signal,
            "duration_seconds": round(result.duration_seconds, 3),
            "stdout_cut_bytes": result.stdout_cut_bytes,
            "stderr_cut_bytes": result.stderr_cut_bytes,
        },
        cut_bytes=result.stdout_cut_bytes + result.stderr_cut_bytes,
    )
