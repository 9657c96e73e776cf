"""Conducts one session for `subako run`: makes the calls, and decides what the script decides.

What the script leaves open is asked at the terminal. Without a terminal nobody can be asked: the
call is cancelled and the run has a problem, because a decision is never made up.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from subako_ray.cli.script import Answer, Deny, Entry, unexpected
from subako_ray.executor.approvals import Decided
from subako_ray.executor.client_tools import Client
from subako_ray.executor.cluster import SessionHandle
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.forms import FormAction
from subako_ray.schema.canonical import canonical_bytes
from subako_ray.schema.events import (
    ApprovalRequested,
    CallEnded,
    CallRequested,
    CatalogueChanged,
    FormRefused,
    FormRequested,
    Record,
)
from subako_ray.schema.printable import printable

_END_SECONDS: Final = 10
_NOBODY: Final = "subako run"
"""Who cancels what no person was there to decide."""


@dataclass(slots=True, kw_only=True)
class Conductor:
    """Runs the entries of a script one after the other.

    Attributes:
        show: called with every record as it happens.
        note: called with an entry's note before its call.
        interactive: whether a person at the terminal can be asked.
    """

    session: SessionHandle
    principal: str
    show: Callable[[Record], None]
    note: Callable[[str], None]
    interactive: bool
    problems: list[str] = field(default_factory=list)
    _entry: Entry | None = None
    _number: int = 0
    _call_id: str | None = None
    _form: FormRequested | None = None
    _shown: asyncio.Event = field(default_factory=asyncio.Event)
    _asking: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self, entries: list[Entry], clients: dict[str, Client]) -> list[str]:
        """Makes every call and ends the session.

        Args:
            entries: of the script, in order.
            clients: applications of this process, by client id.

        Returns:
            Problems: outcomes that are not what was expected, decisions nobody could make.
        """
        following = asyncio.create_task(self._follow())
        serving = [
            asyncio.create_task(self.session.serve(client_id, client))
            for client_id, client in clients.items()
        ]
        cancelled = True
        try:
            # The transcript opens with the session and its tools.
            await self._shown.wait()
            for entry in entries:
                await _unless_ended(self._make(entry), following)
            cancelled = False
        finally:
            try:
                await self.session.end(cancelled=cancelled, requested_by=self.principal)
                await asyncio.wait([following, *serving], timeout=_END_SECONDS)
            finally:
                for task in (following, *serving):
                    task.cancel()
                await asyncio.gather(following, *serving, return_exceptions=True)
        if not following.cancelled():
            # What could not be shown is an error even when every call was made.
            following.result()
        return self.problems

    async def _make(self, entry: Entry) -> None:
        if entry.note is not None:
            self.note(entry.note)
        self._entry = entry
        self._number += 1
        self._shown.clear()
        outcome = await self.session.call(
            entry.call, canonical_bytes(entry.arguments or {}).decode()
        )
        # The transcript tells this call to its end before the next one begins.
        await self._shown.wait()
        for problem in unexpected(entry, outcome):
            self._note_problem(problem)

    async def _follow(self) -> None:
        try:
            async for record in self.session.events():
                self.show(record)
                self._react(record)
        finally:
            self._shown.set()

    def _react(self, record: Record) -> None:
        match record.event:
            case CatalogueChanged() if self._entry is None:
                self._shown.set()
            case CallRequested(call_id=call_id):
                self._call_id = call_id
            case ApprovalRequested(call_id=call_id) if call_id == self._call_id:
                self._start(self._decide(call_id))
            case FormRequested() as form if form.call_id == self._call_id:
                self._form = form
                self._start(self._answer(form))
            case FormRefused(call_id=call_id) if self._form and call_id == self._form.call_id:
                # Asked again only now, when the transcript has said why the answer did not fit.
                if self._answer_in_script is None:
                    self._start(self._answer(self._form))
            case CallEnded(call_id=call_id) if call_id == self._call_id:
                # A question that waits at the terminal is not for the next call.
                for task in self._asking:
                    task.cancel()
                self._shown.set()
            case _:
                pass

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._asked(work))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _asked(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except EOFError:
            await self._nobody(self._call_id or "", "waits and the terminal was closed")

    async def _decide(self, call_id: str) -> None:
        decide = self._entry.decide if self._entry else None
        match decide:
            case "allow" | "deny":
                decided = Decided(decision=decide)
            case Deny(deny=message):
                decided = Decided(decision="deny", message=message)
            case None if self.interactive:
                decided = await _ask_decision()
            case None:
                await self._nobody(call_id, "is held and nobody is here to decide")
                return
        await self._tell(self.session.decide(call_id, decided, self.principal))

    async def _answer(self, form: FormRequested) -> None:
        answer = self._answer_in_script
        if answer is not None:
            if not await self._give(form.call_id, answer):
                await self._nobody(form.call_id, "asks, and the script's answer does not fit")
        elif self.interactive:
            await self._give(form.call_id, await _ask_answer(form))
        else:
            await self._nobody(form.call_id, "asks and nobody is here to answer")

    @property
    def _answer_in_script(self) -> Answer | None:
        return self._entry.answer if self._entry else None

    async def _give(self, call_id: str, answer: Answer) -> bool:
        content = None if answer.content is None else canonical_bytes(answer.content).decode()
        try:
            await self.session.answer(call_id, answer.action, content, self.principal)
        except ExecutorError as error:
            # An answer that does not fit is refused and the form stays open; the log tells why.
            return error.code != "invalid_request"
        return True

    async def _nobody(self, call_id: str, what: str) -> None:
        self._note_problem(f"the call {what}")
        await self._tell(self.session.cancel(call_id, _NOBODY))

    def _note_problem(self, problem: str) -> None:
        name = self._entry.call if self._entry else "session"
        self.problems.append(f"call {self._number}, {name}: {problem}")

    async def _tell(self, request: Coroutine[Any, Any, None]) -> None:
        try:
            await request
        except ExecutorError as error:
            # The call may have ended meanwhile; what is decided is in the log.
            self.problems.append(error.message)


async def _unless_ended(work: Coroutine[Any, Any, None], following: asyncio.Task[None]) -> None:
    """Does the work as long as somebody follows the log, who alone decides and answers."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait({working, following}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            following.result()
        await working
    finally:
        working.cancel()


async def _ask_decision() -> Decided:
    while True:
        answer = (await read_line("  allow this call? [y]es, [n]o: ")).strip().lower()
        if answer in ("y", "yes"):
            return Decided(decision="allow")
        if answer in ("n", "no"):
            message = (await read_line("  message for the model (or empty): ")).strip()
            return Decided(decision="deny", message=message or None)


async def _ask_answer(form: FormRequested) -> Answer:
    properties: dict[str, dict[str, Any]] = form.form_schema.get("properties", {})
    required = form.form_schema.get("required", [])
    action = await _ask_action()
    if action != "accept":
        return Answer(action=action)
    content: dict[str, Any] = {}
    for name, rule in properties.items():
        hint = ", ".join(map(str, rule.get("enum", []))) or str(rule.get("type"))
        need = "" if name in required else ", may be empty"
        text = (await read_line(f"  {printable(name)} ({printable(hint)}{need}): ")).strip()
        if text or name in required:
            content[name] = field_value(text, rule)
    return Answer(action="accept", content=content)


async def _ask_action() -> FormAction:
    actions: dict[str, FormAction] = {"a": "accept", "d": "decline", "c": "cancel"}
    while True:
        answer = (await read_line("  answer? [a]ccept, [d]ecline, [c]ancel: ")).strip().lower()
        for letter, action in actions.items():
            if answer in (letter, action):
                return action


def field_value(text: str, rule: dict[str, Any]) -> Any:
    """Reads what a person typed as the field's type; text that is none stays text."""
    match rule.get("type"):
        case "boolean":
            return {
                "y": True,
                "yes": True,
                "true": True,
                "n": False,
                "no": False,
                "false": False,
            }.get(text.lower(), text)
        case "integer":
            try:
                return int(text)
            except ValueError:
                return text
        case "number":
            try:
                number = float(text)
            except ValueError:
                return text
            return number if math.isfinite(number) else text
        case "array":
            return [item.strip() for item in text.split(",") if item.strip()]
        case _:
            return text


async def read_line(prompt: str) -> str:
    """Reads one line from the terminal without blocking the session.

    Raises:
        EOFError: the terminal was closed.
    """
    sys.stderr.write(prompt)
    sys.stderr.flush()
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    # Bytes that are no text have no place in a log: they are replaced.
    line = sys.stdin.buffer.readline().decode(sys.stdin.encoding, "replace")
    if not line:
        raise EOFError
    return line
