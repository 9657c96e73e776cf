"""A session host without Ray: real sessions and stores, its neighbours counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from session_bench import PERSON

from subako_ray.executor.credentials import CredentialProvider, NoVaults
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.sandbox_host import ExecReply, ExecRequest, StartReply
from subako_ray.executor.session_host import SessionHost, SessionRequest
from subako_ray.sandbox.function import FunctionRunner
from subako_ray.sandbox.machine import ExecResult
from subako_ray.schema.plan import Plan


@dataclass(slots=True)
class CountingSandboxes:
    """Sandboxes that answer as told and count what was asked of them."""

    start_reply: StartReply = "started"
    exec_reply: ExecReply = field(
        default_factory=lambda: ExecResult(
            exit_code=0,
            signal=None,
            timed_out=False,
            stdout=b"out\xff\n",
            stderr=b"",
            stdout_cut_bytes=5,
            stderr_cut_bytes=0,
            duration_seconds=0.1,
        )
    )
    executed: list[ExecRequest] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    async def start(self, session_id: str, name: str) -> StartReply:
        """Answers as told."""
        return self.start_reply

    async def exec(self, request: ExecRequest) -> ExecReply:
        """Takes the request down and answers as told."""
        self.executed.append(request)
        return self.exec_reply

    async def cancel(self, call_id: str) -> None:
        """Nothing runs."""

    async def end(self, session_id: str) -> None:
        """Counts."""
        self.ended.append(session_id)


@dataclass(slots=True)
class CountingCredentials:
    """Credential access that counts what was opened and closed."""

    opened: list[tuple[str, tuple[str, ...], frozenset[str], str]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    async def open(
        self, session_id: str, vaults: Sequence[str], targets: frozenset[str], principal: str
    ) -> CredentialProvider:
        """Counts."""
        self.opened.append((session_id, tuple(vaults), targets, principal))
        return NoVaults()

    async def close(self, session_id: str) -> None:
        """Counts."""
        self.closed.append(session_id)


@dataclass(slots=True)
class Host:
    """A session host and what stands around it."""

    sessions: SessionHost
    sandboxes: CountingSandboxes
    credentials: CountingCredentials


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host over counting neighbours; it has no jails, and a plan with functions says so."""

    async def no_functions() -> FunctionRunner:
        raise ExecutorError("precondition_failed", "this host cannot isolate")

    sandboxes, credentials = CountingSandboxes(), CountingCredentials()
    return Host(
        SessionHost(tmp_path, functions=no_functions, sandboxes=sandboxes, credentials=credentials),
        sandboxes,
        credentials,
    )


def request(plan: Plan, *vaults: str, **bundles: bytes) -> SessionRequest:
    """A request for a session."""
    return SessionRequest(
        plan=plan.to_bytes(),
        bundles={"sha256:" + digest: data for digest, data in bundles.items()},
        vaults=vaults,
        principal=PERSON,
    )
