"""Holds many sessions in one process: makes them of plans, and finds them for every request.

A plain class; the cluster's session host actor is its shell.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, assert_never

from subako_ray.executor.approvals import Approvals
from subako_ray.executor.bundle_store import BundleStore
from subako_ray.executor.client_tools import check_registration
from subako_ray.executor.credentials import CredentialProvider, NoVaults
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.event_store import EventStore
from subako_ray.executor.forms import Forms
from subako_ray.executor.sandbox_host import RELEASES, Sandboxes
from subako_ray.executor.session import (
    ClientRegistration,
    GrantSource,
    RegisteredClient,
    Session,
    new_id,
)
from subako_ray.executor.session_log import SessionLog
from subako_ray.executor.source import Source
from subako_ray.executor.sources.builtin import AskUserSource, SessionSource
from subako_ray.executor.sources.function import FunctionSource
from subako_ray.executor.sources.mcp import McpSource
from subako_ray.executor.sources.sandbox import SandboxSource
from subako_ray.executor.sources.skill import SkillSource
from subako_ray.sandbox.function import FunctionRunner
from subako_ray.schema import limits
from subako_ray.schema.bundle import path_problem
from subako_ray.schema.events import CatalogueChanged, Record
from subako_ray.schema.names import is_grant_name
from subako_ray.schema.plan import (
    BuiltinPlanGrant,
    BundledSkill,
    FunctionPlanGrant,
    McpPlanGrant,
    Plan,
    PlanError,
    PlanGrant,
    SandboxPlanGrant,
    SkillPlanGrant,
    load_plan,
)
from subako_ray.schema.target import McpTarget


class CredentialAccess(Protocol):
    """Opens a session's credentials; what a session host is given instead of a vault."""

    async def open(
        self, session_id: str, vaults: Sequence[str], targets: frozenset[str], principal: str
    ) -> CredentialProvider:
        """Checks that the principal may use the vaults, and binds a provider to the session.

        Raises:
            ExecutorError: `not_found` for an unknown vault, `forbidden` for one that is not the
                principal's, `precondition_failed` for one that is sealed.
        """

    async def close(self, session_id: str) -> None:
        """Forgets what the session was allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """What a session is made of; plain data.

    Attributes:
        plan: the plan's bytes.
        bundles: tar.gz by digest, at least those the host does not have.
        vaults: names, in the order they are searched.
        clients: applications that offer tools from the start.
        principal: who makes the session, e.g. `user:ada`.
    """

    plan: bytes = field(repr=False)
    bundles: Mapping[str, bytes] = field(repr=False, default_factory=dict)
    vaults: tuple[str, ...] = ()
    clients: tuple[ClientRegistration, ...] = ()
    principal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedSession:
    """A session that was made: its id, its clients and its catalogue."""

    session_id: str
    clients: tuple[RegisteredClient, ...]
    catalogue: CatalogueChanged


class SessionHost:
    """The sessions of one process."""

    def __init__(
        self,
        state: Path,
        *,
        functions: Callable[[], Awaitable[FunctionRunner]],
        sandboxes: Sandboxes,
        credentials: CredentialAccess,
    ) -> None:
        """Opens the stores.

        Args:
            state: folder of the deployment's state, mode 0700.
            functions: gives the runner of function calls; asked only by plans with functions.
            sandboxes: the sandbox host.
            credentials: the vault's side.
        """
        self._store = EventStore(state / "events.db")
        self._bundles = BundleStore(state / "bundles")
        self._functions = functions
        self._sandboxes = sandboxes
        self._credentials = credentials
        self._sessions: dict[str, Session] = {}

    async def create(self, request: SessionRequest) -> CreatedSession:
        """Makes a session, or refuses it with every reason at once.

        Raises:
            ExecutorError: `invalid_request` for a bad plan, bundle or client;
                `precondition_failed` when this deployment cannot run the plan; and what
                `CredentialAccess.open` raises.
        """
        try:
            plan = load_plan(request.plan)
        except PlanError as error:
            raise ExecutorError("invalid_request", f"the plan cannot be used: {error}") from None
        _refuse_ambiguous(plan)
        self._refuse_what_is_missing(plan)
        if len(request.vaults) > limits.VAULTS_PER_SESSION:
            raise ExecutorError(
                "invalid_request", f"a session names at most {limits.VAULTS_PER_SESSION} vaults"
            )
        for client in request.clients:
            check_registration(client.name, client.tools)
        for digest, data in request.bundles.items():
            await asyncio.to_thread(self._bundles.add, digest, data)
        missing = sorted(b for b in plan.bundles() if self._bundles.folder(b) is None)
        if missing:
            raise ExecutorError("invalid_request", f"the bundle `{missing[0]}` is not here")

        session_id = new_id("session")
        try:
            return await self._open(session_id, plan, request)
        except BaseException:
            await self._credentials.close(session_id)
            raise

    async def _open(self, session_id: str, plan: Plan, request: SessionRequest) -> CreatedSession:
        provider: CredentialProvider = NoVaults()
        if request.vaults:
            provider = await self._credentials.open(
                session_id, request.vaults, targets_of(plan), request.principal
            )
        log = SessionLog(self._store, session_id)
        forms = Forms(log)
        session = Session(
            plan=plan,
            log=log,
            approvals=Approvals(log, plan.approvals.expires_seconds),
            forms=forms,
        )
        sources = [
            GrantSource(
                grant=grant, source=await self._source(grant, session_id, log, forms, provider)
            )
            for grant in plan.grants
        ]
        clients = await session.open(sources, request.clients, request.vaults, request.principal)
        self._sessions[session_id] = session
        return CreatedSession(
            session_id=session_id, clients=tuple(clients), catalogue=session.catalogue()
        )

    def session(self, session_id: str) -> Session:
        """Finds a session.

        Raises:
            ExecutorError: `not_found`, or `precondition_failed` when it has ended.
        """
        session = self._sessions.get(session_id)
        if session is None:
            self.require_log(session_id)
            raise ExecutorError("precondition_failed", "the session has ended")
        return session

    def require_log(self, session_id: str) -> None:
        """Refuses a session that never was; one that has ended has its log.

        Raises:
            ExecutorError: `not_found`.
        """
        if session_id not in self._sessions and not self._store.read(session_id, limit=1):
            raise ExecutorError("not_found", f"no session `{session_id}`")

    async def follow(self, session_id: str, after_seq: int) -> AsyncIterator[list[Record]]:
        """Yields a session's log, as `Session.follow` does; of one that has ended, what there is.

        Raises:
            ExecutorError: `not_found`.
        """
        self.require_log(session_id)
        if session_id in self._sessions:
            async for records in self._sessions[session_id].follow(after_seq):
                yield records
            return
        while records := self._store.read(session_id, after_seq):
            yield records
            after_seq = records[-1].seq

    async def end(self, session_id: str, *, cancelled: bool, requested_by: str) -> None:
        """Ends a session, its sandboxes and what it was allowed to ask of vaults."""
        session = self.session(session_id)
        try:
            await session.end(cancelled=cancelled, requested_by=requested_by)
        finally:
            self._sessions.pop(session_id, None)
            try:
                await self._sandboxes.end(session_id)
            finally:
                await self._credentials.close(session_id)

    async def close(self) -> None:
        """Ends every session and closes the store."""
        for session_id in list(self._sessions):
            await self.end(session_id, cancelled=False, requested_by="host")
        self._store.close()

    def _refuse_what_is_missing(self, plan: Plan) -> None:
        reasons = [reason for grant in plan.grants for reason in missing_for(grant)]
        if reasons:
            raise ExecutorError(
                "precondition_failed",
                f"this deployment cannot run the plan: {'; '.join(reasons)}",
            )

    async def _source(
        self,
        grant: PlanGrant,
        session_id: str,
        log: SessionLog,
        forms: Forms,
        provider: CredentialProvider,
    ) -> Source:
        match grant:
            case McpPlanGrant():
                return McpSource(grant.name, grant.url, provider)
            case FunctionPlanGrant():
                return FunctionSource(grant, self._folder(grant.bundle), await self._functions())
            case SandboxPlanGrant():
                return SandboxSource(grant, session_id, self._sandboxes, log)
            case SkillPlanGrant(source=BundledSkill() as bundled):
                folder = self._folder(bundled.bundle)
                return SkillSource(grant.name, grant.tools, folder, bundled.files)
            case SkillPlanGrant():
                raise AssertionError("a stored skill was refused before")
            case BuiltinPlanGrant(name="ask_user"):
                return AskUserSource(grant.tools, forms)
            case BuiltinPlanGrant():
                return SessionSource(grant.tools, log)
        assert_never(grant)

    def _folder(self, bundle: str) -> Path:
        folder = self._bundles.folder(bundle)
        if folder is None:
            raise ExecutorError("invalid_request", f"the bundle `{bundle}` is not here")
        return folder


def missing_for(grant: PlanGrant) -> list[str]:
    """Says what this deployment lacks for a grant; an empty list when nothing."""
    match grant:
        case SkillPlanGrant(name=name, source=source) if not isinstance(source, BundledSkill):
            return [f"skill `{name}` is in a skill store, and there is none yet"]
        case FunctionPlanGrant(name=name, origins=origins) if origins:
            return [f"function `{name}` names origins, and there is no egress yet"]
        case SandboxPlanGrant(name=name, network="unrestricted"):
            return [f"sandbox `{name}` asks for network, and there is no egress yet"]
        case SandboxPlanGrant(name=name, release=release) if release not in RELEASES:
            return [f"sandbox `{name}` asks for release `{release}`, which is not offered here"]
        case _:
            return []


def _refuse_ambiguous(plan: Plan) -> None:
    """Refuses what no compiler writes: names that could stand for two policies or leave a bundle.

    Raises:
        ExecutorError: `invalid_request`.
    """
    seen: set[str] = set()
    for grant in plan.grants:
        name = f"{grant.kind}:{grant.name}"
        if not (is_grant_name(grant.name) or isinstance(grant, BuiltinPlanGrant)):
            raise ExecutorError("invalid_request", f"`{grant.name[:64]}` is no grant name")
        for each in (name, *(f"{name}:{tool.name}" for tool in grant.tools)):
            if each in seen:
                raise ExecutorError("invalid_request", f"the plan has `{each[:200]}` twice")
            seen.add(each)
        if isinstance(grant, SkillPlanGrant) and isinstance(grant.source, BundledSkill):
            for file in grant.source.files:
                if (problem := path_problem(file)) is not None:
                    raise ExecutorError(
                        "invalid_request", f"skill `{grant.name}`: a file {problem}"
                    )


def targets_of(plan: Plan) -> frozenset[str]:
    """The MCP targets of a plan in normal form: all that its sessions may ask a vault for."""
    return frozenset(
        str(McpTarget.parse(grant.url)) for grant in plan.grants if isinstance(grant, McpPlanGrant)
    )
