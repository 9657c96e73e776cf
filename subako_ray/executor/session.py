"""One session of a plan: its sources, its catalogue, its log, and the calls in flight."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from subako_ray.executor.approvals import Approvals, Decided
from subako_ray.executor.catalogue import Catalogue, CatalogueEntry
from subako_ray.executor.client_tools import check_registration
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.forms import FormAction, Forms
from subako_ray.executor.pipeline import Call, Pipeline
from subako_ray.executor.session_log import SessionLog
from subako_ray.executor.source import Listing, Source, SourceUnavailableError
from subako_ray.executor.sources.client import ClientDeadlines, ClientResult, ClientSource
from subako_ray.schema.events import (
    CancelRequested,
    CatalogueChanged,
    ClientLeft,
    ClientRegistered,
    ClientToolDescriptor,
    Record,
    SessionCreated,
    SessionEnded,
)
from subako_ray.schema.outcome import Outcome
from subako_ray.schema.plan import Plan, PlanGrant

_NAME_CHARACTERS: Final = 200
"""Kept of the name of a call; no tool has one as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRegistration:
    """A client that wants to join: the name it asks for, and its tools."""

    name: str
    tools: tuple[ClientToolDescriptor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredClient:
    """A client that joined, under the name it was given."""

    client_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSource:
    """A grant of the plan and the source of its tools."""

    grant: PlanGrant
    source: Source


def new_id(prefix: str) -> str:
    """Makes an id that nobody can guess, e.g. `call_5f…`."""
    return f"{prefix}_{secrets.token_hex(12)}"


class Session:
    """One session. Its methods are called on one event loop."""

    def __init__(
        self,
        *,
        plan: Plan,
        log: SessionLog,
        approvals: Approvals,
        forms: Forms,
        deadlines: ClientDeadlines | None = None,
    ) -> None:
        self.plan = plan
        self._log = log
        self._approvals = approvals
        self._forms = forms
        self._deadlines = deadlines or ClientDeadlines()
        self._catalogue = Catalogue(plan.model.format)
        self._pipeline = Pipeline(log, self._catalogue, approvals)
        self._sources: list[Source] = []
        self._clients: dict[str, ClientSource] = {}
        self._spent_names: set[str] = set()
        self._calls: dict[str, asyncio.Task[Outcome]] = {}
        self._ending: asyncio.Task[None] | None = None

    async def open(
        self,
        sources: Sequence[GrantSource],
        clients: Sequence[ClientRegistration],
        vaults: Sequence[str],
        principal: str,
    ) -> list[RegisteredClient]:
        """Asks every source for its tools and records the catalogue.

        A source that cannot be asked takes no other down: its tools are unavailable, and the
        catalogue says why.
        """
        self._sources = [each.source for each in sources]
        self._log.append(
            SessionCreated(
                plan_digest=self.plan.digest,
                agent=self.plan.agent,
                vaults=tuple(vaults),
                principal=principal,
            )
        )
        listings = await asyncio.gather(*(_listing(each.source) for each in sources))
        for each, listing in zip(sources, listings, strict=True):
            if isinstance(listing, Listing):
                self._catalogue.add_grant(each.grant, each.source, listing)
            else:
                self._catalogue.add_unavailable(each.grant, each.source, listing)
        registered = [await self._add_client(client) for client in clients]
        self._log.append(self._catalogue.event())
        return registered

    async def register(self, client: ClientRegistration) -> RegisteredClient:
        """Lets a client join a running session.

        Raises:
            ExecutorError: `invalid_request` under the product's limits, `precondition_failed` when
                the session has ended.
        """
        self._refuse_when_ended()
        registered = await self._add_client(client)
        self._log.append(self._catalogue.event())
        return registered

    async def leave(self, client_id: str) -> None:
        """A client departs: calls it has end, its tools are gone, its name stays spent.

        Raises:
            ExecutorError: `not_found`, or `precondition_failed` when the session has ended.
        """
        self._refuse_when_ended()
        client = self._client(client_id)
        del self._clients[client_id]
        await client.close()
        self._catalogue.remove_source(client)
        self._log.append(
            ClientLeft(client_id=client_id, reason="departed"), self._catalogue.event()
        )

    def offered(self) -> list[CatalogueEntry]:
        """What an engine of this session is shown."""
        return self._catalogue.offered()

    def catalogue(self) -> CatalogueChanged:
        """The whole catalogue, denied tools included."""
        return self._catalogue.event()

    async def call(self, name: str, argument_text: str, requested_by: str) -> Outcome:
        """Makes one call and waits for its outcome.

        Args:
            name: a qualified tool name.
            argument_text: a JSON object.
            requested_by: `engine`, `client:<name>` or a person.

        Raises:
            ExecutorError: `precondition_failed` when the session has ended.
        """
        self._refuse_when_ended()
        call = Call(
            call_id=new_id("call"),
            # A lone surrogate has no UTF-8 form; the replacement is in no tool's name either.
            name=name[:_NAME_CHARACTERS].encode("utf-8", "replace").decode(),
            argument_text=argument_text,
            requested_by=requested_by,
        )
        task = asyncio.create_task(self._pipeline.run(call))
        self._calls[call.call_id] = task
        try:
            # Whoever waits may go away; the call goes on to its outcome.
            return await asyncio.shield(task)
        finally:
            if task.done():
                self._calls.pop(call.call_id, None)
            else:
                task.add_done_callback(lambda _: self._calls.pop(call.call_id, None))

    def decide(self, call_id: str, decided: Decided, decided_by: str) -> None:
        """Decides a held call; see `Approvals.decide`."""
        self._approvals.decide(call_id, decided, decided_by)

    def answer(
        self, call_id: str, action: FormAction, content: str | None, answered_by: str
    ) -> None:
        """Answers a form; see `Forms.answer`."""
        self._forms.answer(call_id, action, content, answered_by)

    def ack(self, client_id: str, call_id: str) -> None:
        """A client has taken a call."""
        self._client(client_id).ack(call_id)

    def result(self, client_id: str, call_id: str, result: ClientResult) -> None:
        """A client answers a call."""
        self._client(client_id).result(call_id, result)

    def cancel(self, call_id: str, requested_by: str) -> None:
        """Cancels one call; its outcome says whether it may have run.

        Raises:
            ExecutorError: `not_found` when no such call is in flight.
        """
        task = self._calls.get(call_id)
        if task is None or task.done():
            raise ExecutorError("not_found", f"no call `{call_id}` is in flight")
        self._log.append(CancelRequested(call_id=call_id, requested_by=requested_by))
        task.cancel()

    async def end(self, *, cancelled: bool, requested_by: str) -> None:
        """Ends the session: calls in flight are cancelled, sources let go, the log closed.

        Whoever asks a second time waits for the same end; whoever waits may go away.
        """
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(cancelled, requested_by))
        await asyncio.shield(self._ending)

    async def _end(self, cancelled: bool, requested_by: str) -> None:
        tasks = [task for task in self._calls.values() if not task.done()]
        if cancelled or tasks:
            self._log.append(CancelRequested(call_id=None, requested_by=requested_by))
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for client in self._clients.values():
            await client.close()
        await asyncio.gather(*(source.close() for source in self._sources), return_exceptions=True)
        self._log.append(SessionEnded(reason="cancelled" if cancelled else "closed"))

    def follow(self, after_seq: int) -> AsyncIterator[list[Record]]:
        """Yields the log after a number, then what comes, until the session has ended."""
        return self._log.follow(after_seq)

    async def _add_client(self, client: ClientRegistration) -> RegisteredClient:
        check_registration(client.name, client.tools)
        name = self._free_name(client.name)
        source = ClientSource(name, new_id("client"), client.tools, self._log, self._deadlines)
        self._log.append(
            ClientRegistered(client_id=source.client_id, name=name, tools=client.tools)
        )
        self._spent_names.add(name)
        self._clients[source.client_id] = source
        self._catalogue.add_client(source, await source.open())
        return RegisteredClient(client_id=source.client_id, name=name)

    def _free_name(self, asked: str) -> str:
        counter = 1
        name = asked
        while name in self._spent_names:
            counter += 1
            suffix = f"-{counter}"
            name = asked[: 32 - len(suffix)] + suffix
        return name

    def _refuse_when_ended(self) -> None:
        if self._ending is not None:
            raise ExecutorError("precondition_failed", "the session has ended")

    def _client(self, client_id: str) -> ClientSource:
        client = self._clients.get(client_id)
        if client is None:
            raise ExecutorError("not_found", f"no client `{client_id}` is in the session")
        return client


async def _listing(source: Source) -> Listing | str:
    try:
        return await source.open()
    except SourceUnavailableError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a broken source takes no other down
        # The text of a foreign exception may hold what no log should: only its type is kept.
        return f"it broke ({type(error).__name__})"
