"""The one pipeline every tool call goes through, whatever its kind.

Find in the catalogue, apply the policy, validate the arguments, hold for approval, record the
intent, dispatch (the source takes its credential per request), cap, record the outcome. The end of
a call is a value; what could not be decided before dispatch never reaches a source.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, Final

from subako_ray.executor.approvals import EXPIRED, Approvals, Held
from subako_ray.executor.catalogue import Catalogue, CatalogueEntry
from subako_ray.executor.event_store import StaleWriterError
from subako_ray.executor.nesting import nests_deeper
from subako_ray.executor.result_cap import cap
from subako_ray.executor.session_log import SessionLog
from subako_ray.executor.source import Approved, SourceCall, SourceUnavailableError, label
from subako_ray.schema import limits
from subako_ray.schema.canonical import CanonicalError, canonical_bytes, digest, parse_json
from subako_ray.schema.events import CallDispatched, CallEnded, CallIntended, CallRequested
from subako_ray.schema.names import split_name
from subako_ray.schema.outcome import Outcome, ended

_LOGGER: Final = logging.getLogger(__name__)

CANCEL_SECONDS: Final = 5
"""How long a source may take to let go of a cancelled call before nobody waits for it."""


@dataclass(slots=True, kw_only=True)
class Call:
    """One call on its way through the pipeline."""

    call_id: str
    name: str
    argument_text: str = field(repr=False)
    requested_by: str
    dispatched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arguments:
    values: dict[str, Any] = field(repr=False)
    data: bytes = field(repr=False)

    @property
    def hash(self) -> str:
        return digest(self.data)


class Pipeline:
    """Runs calls of one session."""

    def __init__(self, log: SessionLog, catalogue: Catalogue, approvals: Approvals) -> None:
        self._log = log
        self._catalogue = catalogue
        self._approvals = approvals

    async def run(self, call: Call) -> Outcome:
        """Runs one call to its outcome and records both; cancelling the task is an outcome too.

        Raises:
            StaleWriterError: when this process is not the session's writer any more.
        """
        try:
            outcome = await self._steps(call)
        except asyncio.CancelledError:
            outcome = _cancelled(call)
        except StaleWriterError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever broke, the call has one outcome
            # The text of a foreign exception may hold what no log should: only its type is kept.
            _LOGGER.error("call %s broke: %s", call.call_id, type(error).__name__)
            outcome = _broken(call, type(error).__name__)
        outcome = cap(outcome)
        self._log.append(CallEnded(call_id=call.call_id, outcome=outcome))
        return outcome

    async def _steps(self, call: Call) -> Outcome:
        try:
            arguments = _read_arguments(call.argument_text)
        except CanonicalError as error:
            self._record_request(call, {}, digest(call.argument_text.encode("utf-8", "replace")))
            return ended("tool_failed", "invalid_arguments", f"the arguments are wrong: {error}")
        self._record_request(call, arguments.values, arguments.hash)

        entry = self._catalogue.find(call.name)
        if self._catalogue.is_denied(call.name):
            return ended("denied", "policy", _no_such_tool(call.name))
        if entry is None:
            return self._unknown(call.name)
        problem = entry.validator.problem(arguments.values)
        if problem is not None:
            return ended("tool_failed", "invalid_arguments", f"the arguments are wrong: {problem}")

        approved: Approved | None = None
        if entry.policy == "require_approval":
            held = await self._held(call, entry, arguments)
            decided = await self._approvals.hold(held)
            if decided is EXPIRED:
                return ended("denied", "expired", "nobody decided this call in time")
            if decided.decision == "deny":
                return ended("denied", "person", _denied_text(decided.message))
            approved = Approved(credential=held.credential)
            if self._catalogue.find(call.name) is not entry:
                return ended(
                    "denied", "tool_changed", "the tool changed after the approval was asked for"
                )
        return await self._dispatch(call, entry, arguments, approved)

    async def _held(self, call: Call, entry: CatalogueEntry, arguments: _Arguments) -> Held:
        return Held(
            call_id=call.call_id,
            server=label(entry.source),
            tool=entry.name.tool,
            arguments=arguments.values,
            args_hash=arguments.hash,
            tool_version=entry.version,
            credential=await entry.source.credential(),
        )

    async def _dispatch(
        self, call: Call, entry: CatalogueEntry, arguments: _Arguments, approved: Approved | None
    ) -> Outcome:
        source = entry.source
        self._log.append(
            CallIntended(call_id=call.call_id, tool_version=entry.version),
            CallDispatched(call_id=call.call_id, source=label(source)),
        )
        call.dispatched = True
        running = asyncio.ensure_future(
            source.call(
                SourceCall(
                    call_id=call.call_id,
                    tool=entry.name.tool,
                    arguments=arguments.values,
                    argument_bytes=arguments.data,
                    approved=approved,
                )
            )
        )
        try:
            return await asyncio.shield(running)
        except SourceUnavailableError as error:
            return ended("source_unavailable", None, str(error))
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait({running}, timeout=CANCEL_SECONDS)
            raise

    def _record_request(self, call: Call, arguments: dict[str, Any], args_hash: str) -> None:
        self._log.append(
            CallRequested(
                call_id=call.call_id,
                name=call.name,
                arguments=arguments,
                args_hash=args_hash,
                requested_by=call.requested_by,
            )
        )

    def _unknown(self, name: str) -> Outcome:
        parts = split_name(name)
        if parts is not None:
            source = f"{parts.kind}:{parts.grant}"
            reason = self._catalogue.unavailable_reason(source)
            if reason is not None:
                return ended("source_unavailable", None, f"`{source}` is unavailable: {reason}")
        return ended("tool_failed", "unknown_tool", _no_such_tool(name))


def _read_arguments(text: str) -> _Arguments:
    if len(text) > limits.ARGUMENTS_BYTES:
        raise CanonicalError(f"more than {limits.ARGUMENTS_BYTES} characters")
    value = parse_json(text)
    if not isinstance(value, dict):
        raise CanonicalError("not a JSON object")
    if nests_deeper(value, limits.ARGUMENTS_DEPTH):
        raise CanonicalError(f"nests deeper than {limits.ARGUMENTS_DEPTH} levels")
    return _Arguments(values=value, data=canonical_bytes(value))


def _no_such_tool(name: str) -> str:
    return f"there is no tool `{name[:200]}`"


def _denied_text(message: str | None) -> str:
    return f"a person denied this call: {message}" if message else "a person denied this call"


def _cancelled(call: Call) -> Outcome:
    if call.dispatched:
        return ended("cancelled", "may_have_run", "the call was cancelled while it ran")
    return ended("cancelled", "not_run", "the call was cancelled before it ran")


def _broken(call: Call, type_name: str) -> Outcome:
    if call.dispatched:
        return ended("unknown", "internal", f"the call may have run; its end is lost ({type_name})")
    return ended("tool_failed", "internal", f"the call could not be made ({type_name})")
