"""Calls held for a person: each approval is for one call and is decided once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.event_store import timestamp, utc_now
from subako_ray.executor.session_log import SessionLog
from subako_ray.schema.events import ApprovalRequested, ApprovalResolved

Decision = Literal["allow", "deny"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision; `message` is for the model, when the call was denied."""

    decision: Decision
    message: str | None = None


EXPIRED: Final = Decided(decision="deny", message="nobody decided in time")
"""What a held call ends with when its time is up: a denial, never an allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a person is shown, and what runs if they allow it."""

    call_id: str
    server: str
    tool: str
    arguments: dict[str, object] = field(repr=False)
    args_hash: str
    tool_version: str
    credential: str | None


def require_person(who: str) -> None:
    """Refuses everybody but a person: who makes calls may never decide.

    Args:
        who: a principal such as `user:ada` or `uid:1000`, or a maker of calls such as `engine`.

    Raises:
        ExecutorError: `forbidden`.
    """
    if not who.startswith(("user:", "uid:")):
        raise ExecutorError("forbidden", f"`{who}` may make calls, not decide them")


class Approvals:
    """The approvals of one session."""

    def __init__(self, log: SessionLog, expires_seconds: int) -> None:
        self._log = log
        self._expires_seconds = expires_seconds
        self._pending: dict[str, asyncio.Future[Decided]] = {}
        self._decided: dict[str, Decision] = {}

    async def hold(self, held: Held) -> Decided:
        """Holds a call until a person decides, or until it expires as a deny."""
        pending: asyncio.Future[Decided] = asyncio.get_running_loop().create_future()
        self._pending[held.call_id] = pending
        expires = utc_now() + timedelta(seconds=self._expires_seconds)
        try:
            self._log.append(
                ApprovalRequested(
                    call_id=held.call_id,
                    server=held.server,
                    tool=held.tool,
                    arguments=held.arguments,
                    args_hash=held.args_hash,
                    tool_version=held.tool_version,
                    credential=held.credential,
                    expires_at=timestamp(expires),
                )
            )
            async with asyncio.timeout(self._expires_seconds):
                return await pending
        except TimeoutError:
            # A decision that came in the same moment stands.
            if pending.done() and not pending.cancelled():
                return pending.result()
            return self._resolve(held.call_id, EXPIRED, "expiry")
        finally:
            self._pending.pop(held.call_id, None)

    def decide(self, call_id: str, decided: Decided, decided_by: str) -> None:
        """Decides a held call. The first decision stands.

        Raises:
            ExecutorError: `forbidden` when not a person decides, `conflict` when it is decided,
                `not_found` when no such call is held.
        """
        require_person(decided_by)
        pending = self._pending.get(call_id)
        if pending is None or pending.done():
            before = self._decided.get(call_id)
            if before is None:
                raise ExecutorError("not_found", f"no call `{call_id}` is held for approval")
            raise ExecutorError("conflict", f"call `{call_id}` was already decided: {before}")
        pending.set_result(self._resolve(call_id, decided, decided_by))

    def _resolve(self, call_id: str, decided: Decided, by: str) -> Decided:
        self._log.append(
            ApprovalResolved(
                call_id=call_id,
                decision=decided.decision,
                deny_message=decided.message if decided.decision == "deny" else None,
                resolved_by=by,
            )
        )
        self._decided[call_id] = decided.decision
        return decided
