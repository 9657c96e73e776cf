"""Holds the sandboxes of a node's sessions: long-lived jails, each of one session and one grant.

A plain class; the cluster's sandbox actor is its shell. What it returns is plain data.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from subako_ray.sandbox.lease import Jailer
from subako_ray.sandbox.machine import ExecResult, Machine, MachineLimits, MachineLost
from subako_ray.sandbox.spec import JailUnavailable
from subako_ray.schema import limits

RELEASES = frozenset({"2026"})
"""Sandbox releases this deployment offers: `2026` is the host's own `/usr`, read-only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """One command for a sandbox."""

    session_id: str
    name: str
    call_id: str
    command: str = field(repr=False)
    timeout_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecFailed:
    """The command has no result.

    `unavailable`: there is no sandbox and nothing was run. `lost`: the sandbox ended, and its
    files with it. `cancelled`: the command was killed because its call was cancelled.
    """

    kind: Literal["unavailable", "lost", "cancelled"]
    message: str


ExecReply: TypeAlias = ExecResult | ExecFailed
StartReply: TypeAlias = Literal["started", "running"] | ExecFailed


class Sandboxes(Protocol):
    """What the sandbox source asks of a sandbox host, near or far."""

    async def start(self, session_id: str, name: str) -> StartReply:
        """Makes sure the sandbox runs."""

    async def exec(self, request: ExecRequest) -> ExecReply:
        """Runs a command in a sandbox that runs."""

    async def cancel(self, call_id: str) -> None:
        """Kills the command of a call, and what it started; the sandbox lives on."""

    async def end(self, session_id: str) -> None:
        """Ends every sandbox of a session; nothing of them is left."""


class SandboxHost:
    """Several sandboxes behind one jailer."""

    def __init__(self, jailer: Jailer, machine_limits: MachineLimits | None = None) -> None:
        self._jailer = jailer
        self._limits = machine_limits or MachineLimits()
        self._machines: dict[tuple[str, str], Machine] = {}
        self._starting: dict[tuple[str, str], asyncio.Lock] = {}
        self._running: dict[str, asyncio.Task[ExecResult]] = {}

    async def start(self, session_id: str, name: str) -> StartReply:
        """Makes sure the sandbox runs; says whether it was started for this."""
        key = (session_id, name)
        async with self._starting.setdefault(key, asyncio.Lock()):
            machine = self._machines.get(key)
            if machine is not None and machine.alive:
                return "running"
            if machine is not None:
                await machine.close()
                del self._machines[key]
            try:
                self._machines[key] = await Machine.start(self._jailer, self._limits)
            except (JailUnavailable, MachineLost) as error:
                return ExecFailed(kind="unavailable", message=str(error))
            return "started"

    async def exec(self, request: ExecRequest) -> ExecReply:
        """Runs a command; its failure is a value."""
        machine = self._machines.get((request.session_id, request.name))
        if machine is None:
            return ExecFailed(kind="unavailable", message="the sandbox is not running")
        task = asyncio.create_task(
            machine.exec(
                request.command,
                timeout_seconds=request.timeout_seconds,
                output_bytes=limits.RESULT_BYTES // 2,
            )
        )
        self._running[request.call_id] = task
        try:
            return await task
        except MachineLost as error:
            return ExecFailed(kind="lost", message=str(error))
        except asyncio.CancelledError:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            return ExecFailed(kind="cancelled", message="the command was killed")
        finally:
            self._running.pop(request.call_id, None)

    async def cancel(self, call_id: str) -> None:
        """Kills the command of a call and waits until it is gone."""
        task = self._running.get(call_id)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def end(self, session_id: str) -> None:
        """Ends every sandbox of a session."""
        for key, starting in [item for item in self._starting.items() if item[0][0] == session_id]:
            # One that is just being started is waited for: it must not outlive its session.
            async with starting:
                machine = self._machines.pop(key, None)
                if machine is not None:
                    await machine.close()
            self._starting.pop(key, None)

    async def close(self) -> None:
        """Ends every sandbox."""
        for session_id in {session_id for session_id, _ in self._starting}:
            await self.end(session_id)
