"""A session as its driver sees it: calls, decisions, answers, its clients and its log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError, RayError

from subako_ray.executor.approvals import Decided
from subako_ray.executor.client_tools import Client
from subako_ray.executor.cluster.plain import Reply, value_of
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.forms import FormAction
from subako_ray.executor.session_host import CreatedSession
from subako_ray.schema.events import ClientToolDispatched, Record
from subako_ray.schema.outcome import Outcome

T = TypeVar("T")


class SessionHandle:
    """One session on a cluster. Methods raise `ExecutorError` as the host refuses."""

    def __init__(self, host: Any, created: CreatedSession) -> None:
        """Takes the session host's handle and what it made."""
        self._host = host
        self.created = created
        self.session_id = created.session_id

    async def call(self, name: str, argument_text: str, requested_by: str = "engine") -> Outcome:
        """Makes a call and waits for its outcome."""
        return await _ask(
            self._host.call.remote(self.session_id, name, argument_text, requested_by)
        )

    async def decide(self, call_id: str, decided: Decided, decided_by: str) -> None:
        """Decides a held call."""
        await _ask(self._host.decide.remote(self.session_id, call_id, decided, decided_by))

    async def answer(
        self, call_id: str, action: FormAction, content: str | None, answered_by: str
    ) -> None:
        """Answers a form; `content` is JSON object text."""
        await _ask(self._host.answer.remote(self.session_id, call_id, action, content, answered_by))

    async def cancel(self, call_id: str, requested_by: str) -> None:
        """Cancels one call."""
        await _ask(self._host.cancel.remote(self.session_id, call_id, requested_by))

    async def end(self, *, cancelled: bool, requested_by: str) -> None:
        """Ends the session; with `cancelled` the log says that somebody stopped it."""
        await _ask(self._host.end.remote(self.session_id, cancelled, requested_by))

    async def events(self, after_seq: int = 0) -> AsyncIterator[Record]:
        """Yields the session's records from `after_seq` on until it has ended."""
        await _ask(self._host.exists.remote(self.session_id))
        stream = self._host.events.options(num_returns="streaming").remote(
            self.session_id, after_seq
        )
        try:
            async for batch in stream:
                for line in await batch:
                    yield Record.model_validate_json(line)
        except RayActorError as error:
            raise _host_died(error) from None
        finally:
            # Dropping the generator alone would leave it running in the host.
            ray.cancel(stream)

    async def serve(self, client_id: str, client: Client) -> None:
        """Runs the calls that are dispatched to a client of this process, until the end."""
        running: set[asyncio.Task[None]] = set()
        async for record in self.events():
            event = record.event
            if isinstance(event, ClientToolDispatched) and event.client_id == client_id:
                task = asyncio.create_task(self._serve_one(client_id, client, event))
                running.add(task)
                task.add_done_callback(running.discard)

    async def _serve_one(self, client_id: str, client: Client, event: ClientToolDispatched) -> None:
        try:
            await _ask(self._host.ack.remote(self.session_id, client_id, event.call_id))
            result = await client.run(event.tool, event.arguments)
            await _ask(self._host.result.remote(self.session_id, client_id, event.call_id, result))
        except ExecutorError:
            # The call has ended meanwhile (cancelled, or its time was up): nobody waits for it.
            return


async def _ask(reference: Awaitable[Reply[T]]) -> T:
    try:
        return value_of(await reference)
    except RayActorError as error:
        raise _host_died(error) from None
    except RayError as error:
        raise ExecutorError("internal", f"the cluster failed ({type(error).__name__})") from None


def _host_died(error: RayActorError) -> ExecutorError:
    return ExecutorError(
        "internal",
        f"the session host died ({type(error).__name__})",
        "calls in flight may have run; the log has all that was acknowledged",
    )
