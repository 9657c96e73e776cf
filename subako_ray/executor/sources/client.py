"""Client source: tools that an application connected to the session runs itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.session_log import SessionLog
from subako_ray.executor.source import Listing, OfferedTool, SourceCall
from subako_ray.schema import limits
from subako_ray.schema.events import (
    ClientToolAcked,
    ClientToolDescriptor,
    ClientToolDispatched,
    ClientToolFailed,
)
from subako_ray.schema.outcome import Outcome, ended

ClientFailure = Literal["client_gone", "ack_timeout", "result_timeout", "run_gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResult:
    """What a client answered; an error answer is still an answer."""

    text: str = field(repr=False)
    is_error: bool = False


class _ClientGoneError(Exception):
    """The client left while it had the call."""


@dataclass(slots=True)
class _Waiting:
    acked: asyncio.Future[None]
    result: asyncio.Future[ClientResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDeadlines:
    """How long a client may take, in seconds."""

    ack_seconds: float = limits.CLIENT_ACK_SECONDS
    result_seconds: float = limits.CLIENT_RESULT_SECONDS


class ClientSource:
    """One registered client of a session.

    The dispatch is an event; the client, who follows the log, acknowledges it and answers.
    """

    kind: Literal["client"] = "client"

    def __init__(
        self,
        name: str,
        client_id: str,
        tools: tuple[ClientToolDescriptor, ...],
        log: SessionLog,
        deadlines: ClientDeadlines,
    ) -> None:
        self.name = name
        self.client_id = client_id
        self.tools = tools
        self._log = log
        self._deadlines = deadlines
        self._waiting: dict[str, _Waiting] = {}

    async def open(self) -> Listing:
        """Lists what the client registered."""
        return Listing(
            tools=tuple(
                OfferedTool(
                    name=tool.name, description=tool.description, input_schema=tool.parameters
                )
                for tool in self.tools
            )
        )

    async def credential(self) -> str | None:
        """A client's tool takes no credential of ours."""
        return None

    async def call(self, call: SourceCall) -> Outcome:
        """Dispatches to the client and waits: shortly for the ack, then for the answer."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(loop.create_future(), loop.create_future())
        self._waiting[call.call_id] = waiting
        try:
            self._log.append(
                ClientToolDispatched(
                    call_id=call.call_id,
                    client_id=self.client_id,
                    tool=call.tool,
                    arguments=call.arguments,
                )
            )
            return await self._answer(call, waiting)
        except asyncio.CancelledError:
            self._failed(call.call_id, "run_gone")
            raise
        finally:
            self._waiting.pop(call.call_id, None)

    async def _answer(self, call: SourceCall, waiting: _Waiting) -> Outcome:
        try:
            async with asyncio.timeout(self._deadlines.ack_seconds):
                await waiting.acked
        except TimeoutError:
            self._failed(call.call_id, "ack_timeout")
            return ended(
                "source_unavailable", "ack_timeout", f"client `{self.name}` did not take the call"
            )
        except _ClientGoneError:
            self._failed(call.call_id, "client_gone")
            return ended("source_unavailable", "client_gone", f"client `{self.name}` is gone")
        try:
            async with asyncio.timeout(self._deadlines.result_seconds):
                result = await waiting.result
        except TimeoutError:
            self._failed(call.call_id, "result_timeout")
            return ended(
                "timed_out", "result_timeout", f"client `{self.name}` took the call, gave no answer"
            )
        except _ClientGoneError:
            self._failed(call.call_id, "client_gone")
            return ended(
                "unknown", "client_gone", f"client `{self.name}` took the call and is gone"
            )
        return ended("tool_failed" if result.is_error else "succeeded", None, result.text)

    def ack(self, call_id: str) -> None:
        """Notes that the client has taken a call.

        Raises:
            ExecutorError: `not_found` when the call does not wait for this client, `conflict`
                when it is taken: of two that serve one client, one alone may run it.
        """
        waiting = self._find(call_id)
        if waiting.acked.done():
            raise ExecutorError("conflict", f"call `{call_id}` is taken already")
        self._acked(call_id, waiting)

    def result(self, call_id: str, result: ClientResult) -> None:
        """Takes the client's answer, which counts as its ack too.

        Raises:
            ExecutorError: `not_found`, `conflict` when it is answered, or `invalid_request` when
                the text is too long.
        """
        waiting = self._find(call_id)
        if len(result.text) > limits.CLIENT_RESULT_CHARACTERS:
            raise ExecutorError(
                "invalid_request",
                f"an answer has at most {limits.CLIENT_RESULT_CHARACTERS} characters",
            )
        if waiting.result.done():
            raise ExecutorError("conflict", f"call `{call_id}` is answered already")
        if not waiting.acked.done():
            self._acked(call_id, waiting)
        waiting.result.set_result(result)

    async def close(self) -> None:
        """The client leaves: calls it has end at once."""
        for waiting in self._waiting.values():
            for future in (waiting.acked, waiting.result):
                if not future.done():
                    future.set_exception(_ClientGoneError())
                    # One of the two is never awaited; its exception is not news.
                    future.exception()

    def _find(self, call_id: str) -> _Waiting:
        waiting = self._waiting.get(call_id)
        if waiting is None:
            raise ExecutorError("not_found", f"call `{call_id}` does not wait for `{self.name}`")
        return waiting

    def _acked(self, call_id: str, waiting: _Waiting) -> None:
        self._log.append(ClientToolAcked(call_id=call_id, client_id=self.client_id))
        waiting.acked.set_result(None)

    def _failed(self, call_id: str, reason: ClientFailure) -> None:
        self._log.append(ClientToolFailed(call_id=call_id, client_id=self.client_id, reason=reason))
