"""One session's log as its single writer sees it: append, and let readers follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.event_store import EventStore
from subako_ray.schema.events import Event, Record, SessionEnded

_BATCH = 500


class SessionLog:
    """Appends events with consecutive numbers and wakes whoever follows."""

    def __init__(self, store: EventStore, session_id: str) -> None:
        self.session_id = session_id
        self._store = store
        self._last_seq = 0
        self._ended = False
        self._grown = asyncio.Event()

    def append(self, *events: Event) -> None:
        """Appends events; they are durable when this returns.

        Raises:
            StaleWriterError: when another process has written to this log.
            ExecutorError: `precondition_failed` when the session has ended.
        """
        if self._ended:
            raise ExecutorError("precondition_failed", "the session has ended")
        self._store.append(self.session_id, self._last_seq + 1, events)
        self._last_seq += len(events)
        self._ended = isinstance(events[-1], SessionEnded)
        self._grown.set()
        self._grown = asyncio.Event()

    async def follow(self, after_seq: int = 0) -> AsyncIterator[list[Record]]:
        """Yields batches of records above `after_seq` and new ones until the session has ended."""
        while True:
            grown = self._grown
            records = self._store.read(self.session_id, after_seq, _BATCH)
            if records:
                yield records
                after_seq = records[-1].seq
            elif self._ended:
                return
            else:
                await grown.wait()
