"""The Ray actors: thin shells around the vault, the sandbox host and the session host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import ray

from subako_ray.executor.approvals import Decided
from subako_ray.executor.cluster.plain import Reply, plain, value_of
from subako_ray.executor.cluster.sealed_credentials import ActorCredentials
from subako_ray.executor.errors import ErrorCode, ExecutorError
from subako_ray.executor.event_store import encode
from subako_ray.executor.forms import FormAction
from subako_ray.executor.sandbox_host import (
    ExecReply,
    ExecRequest,
    SandboxHost,
    StartReply,
)
from subako_ray.executor.session import ClientRegistration, RegisteredClient
from subako_ray.executor.session_host import CreatedSession, SessionHost, SessionRequest
from subako_ray.executor.sources.client import ClientResult
from subako_ray.sandbox.function import FunctionRunner
from subako_ray.sandbox.lease import Jailer
from subako_ray.sandbox.spec import IsolationSettings, JailUnavailable
from subako_ray.schema.outcome import Outcome
from subako_ray.schema.target import TargetError
from subako_ray.vault.access import Miss, VaultAccess
from subako_ray.vault.errors import (
    KeyFileError,
    NotPermittedError,
    RefusedError,
    UnknownVaultError,
    VaultError,
    VaultSealedError,
)
from subako_ray.vault.sealing import SealedCredential


@ray.remote(num_cpus=0)
class VaultActor:
    """Holds no secret between calls; hands each out sealed to its asker."""

    def __init__(self, state: str) -> None:
        self._access = VaultAccess(Path(state))

    @plain
    async def open(
        self, session_id: str, vaults: Sequence[str], targets: Sequence[str], principal: str
    ) -> str:
        """Returns the capability of one session."""
        try:
            return self._access.open(session_id, vaults, targets, principal)
        except (VaultError, TargetError) as error:
            raise _vault_refusal(error) from None

    @plain
    async def fetch(
        self, capability: str, target: str, public_key: bytes
    ) -> SealedCredential | Miss:
        """Returns a sealed credential, or why there is none."""
        try:
            return self._access.fetch(capability, target, public_key)
        except (VaultError, TargetError) as error:
            raise _vault_refusal(error) from None

    @plain
    async def close(self, capability: str) -> None:
        """Forgets a capability."""
        self._access.close(capability)


@ray.remote(num_cpus=0)
class SandboxHostActor:
    """Holds the sandboxes of a node."""

    def __init__(self, settings: IsolationSettings) -> None:
        self._settings = settings
        self._starting = asyncio.Lock()
        self._host: SandboxHost | None = None

    @plain
    async def start(self, session_id: str, name: str) -> StartReply:
        """Makes sure a sandbox runs."""
        return await (await self._sandboxes()).start(session_id, name)

    @plain
    async def exec(self, request: ExecRequest) -> ExecReply:
        """Runs a command in a sandbox."""
        return await (await self._sandboxes()).exec(request)

    @plain
    async def cancel(self, call_id: str) -> None:
        """Kills the command of a call."""
        if self._host is not None:
            await self._host.cancel(call_id)

    @plain
    async def end(self, session_id: str) -> None:
        """Ends a session's sandboxes."""
        async with self._starting:
            host = self._host
        if host is not None:
            await host.end(session_id)

    @plain
    async def close(self) -> None:
        """Ends every sandbox."""
        if self._host is not None:
            await self._host.close()

    async def _sandboxes(self) -> SandboxHost:
        async with self._starting:
            if self._host is None:
                self._host = SandboxHost(await _start_jailer(self._settings))
            return self._host


class ActorSandboxes:
    """The session host's view of the sandbox actor."""

    def __init__(self, actor: Any) -> None:
        """Takes the sandbox actor's handle."""
        self._actor = actor

    async def start(self, session_id: str, name: str) -> StartReply:
        """Makes sure a sandbox runs."""
        reply: Reply[StartReply] = await self._actor.start.remote(session_id, name)
        return value_of(reply)

    async def exec(self, request: ExecRequest) -> ExecReply:
        """Runs a command in a sandbox."""
        reply: Reply[ExecReply] = await self._actor.exec.remote(request)
        return value_of(reply)

    async def cancel(self, call_id: str) -> None:
        """Kills the command of a call."""
        await self._actor.cancel.remote(call_id)

    async def end(self, session_id: str) -> None:
        """Ends a session's sandboxes."""
        await self._actor.end.remote(session_id)


@ray.remote(num_cpus=0)
class SessionHostActor:
    """Holds many sessions; every method names the session it is for."""

    def __init__(self, state: str, settings: IsolationSettings, vault: Any, sandboxes: Any) -> None:
        self._state = state
        self._settings = settings
        self._vault = vault
        self._sandboxes = sandboxes
        self._starting = asyncio.Lock()
        self._runner: FunctionRunner | None = None
        self._jailer: Jailer | None = None
        self._made: SessionHost | None = None

    @property
    def _host(self) -> SessionHost:
        if self._made is None:
            self._made = SessionHost(
                Path(self._state),
                functions=self._functions,
                sandboxes=ActorSandboxes(self._sandboxes),
                credentials=ActorCredentials(self._vault),
            )
        return self._made

    @plain
    async def create(self, request: SessionRequest) -> CreatedSession:
        """Makes a session."""
        return await self._host.create(request)

    @plain
    async def call(
        self, session_id: str, name: str, argument_text: str, requested_by: str
    ) -> Outcome:
        """Makes a call and waits for its outcome."""
        return await self._host.session(session_id).call(name, argument_text, requested_by)

    @plain
    async def decide(self, session_id: str, call_id: str, decided: Decided, by: str) -> None:
        """Decides a held call."""
        self._host.session(session_id).decide(call_id, decided, by)

    @plain
    async def answer(
        self, session_id: str, call_id: str, action: FormAction, content: str | None, by: str
    ) -> None:
        """Answers a form."""
        self._host.session(session_id).answer(call_id, action, content, by)

    @plain
    async def register(self, session_id: str, client: ClientRegistration) -> RegisteredClient:
        """Lets a client join."""
        return await self._host.session(session_id).register(client)

    @plain
    async def leave(self, session_id: str, client_id: str) -> None:
        """A client departs."""
        await self._host.session(session_id).leave(client_id)

    @plain
    async def ack(self, session_id: str, client_id: str, call_id: str) -> None:
        """A client has taken a call."""
        self._host.session(session_id).ack(client_id, call_id)

    @plain
    async def result(
        self, session_id: str, client_id: str, call_id: str, result: ClientResult
    ) -> None:
        """A client answers a call."""
        self._host.session(session_id).result(client_id, call_id, result)

    @plain
    async def cancel(self, session_id: str, call_id: str, by: str) -> None:
        """Cancels a call."""
        self._host.session(session_id).cancel(call_id, by)

    @plain
    async def end(self, session_id: str, cancelled: bool, by: str) -> None:
        """Ends a session."""
        await self._host.end(session_id, cancelled=cancelled, requested_by=by)

    @plain
    async def exists(self, session_id: str) -> None:
        """Refuses when there is no such session, and none that has ended."""
        self._host.require_log(session_id)

    async def events(self, session_id: str, after_seq: int) -> AsyncIterator[list[str]]:
        """Streams a session's records as JSON, in batches, until the session has ended."""
        async for records in self._host.follow(session_id, after_seq):
            yield [encode(record) for record in records]

    @plain
    async def close(self) -> None:
        """Ends every session and lets go of the jails."""
        if self._made is not None:
            await self._made.close()
        if self._jailer is not None:
            await self._jailer.aclose()

    async def _functions(self) -> FunctionRunner:
        async with self._starting:
            if self._runner is None:
                self._jailer = await _start_jailer(self._settings)
                self._runner = FunctionRunner(self._jailer)
            return self._runner


async def _start_jailer(settings: IsolationSettings) -> Jailer:
    try:
        return await Jailer.start(settings)
    except JailUnavailable as error:
        raise ExecutorError("precondition_failed", error.message, error.help_text) from None


def _vault_refusal(error: VaultError | TargetError) -> ExecutorError:
    code: ErrorCode
    match error:
        case UnknownVaultError():
            code = "not_found"
        case NotPermittedError():
            code = "forbidden"
        case RefusedError() | TargetError():
            code = "invalid_request"
        case VaultSealedError() | KeyFileError():
            code = "precondition_failed"
        case _:
            code = "internal"
    help_text = error.help_text if isinstance(error, VaultError) else None
    return ExecutorError(code, error.message, help_text)
