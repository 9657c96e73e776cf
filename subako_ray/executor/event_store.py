"""The event store: one SQLite file that holds the log of every session, append-only.

Write-ahead logging with `synchronous=NORMAL`: an acknowledged event survives the death of any
process; a power loss may take the last moments. Two writers of one log cannot both succeed: `seq`
is chosen by the writer and unique in the store, so a stale one is refused.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from subako_ray.schema.canonical import canonical_bytes
from subako_ray.schema.events import Event, Record

_SCHEMA = """
CREATE TABLE IF NOT EXISTS event (
    session_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session_id, seq)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS event_is_never_changed BEFORE UPDATE ON event
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
"""

READ_CHARACTERS = 4 * 1024 * 1024
"""A reader gets no more than this at once: arguments alone may have a megabyte an event."""


class StaleWriterError(Exception):
    """Somebody else has appended to this log: this writer must stop."""


def utc_now() -> datetime:
    """The clock of the store when no other is injected."""
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """Writes a moment as RFC 3339 in UTC with milliseconds."""
    return (
        moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"
    )


class EventStore:
    """Appends to and reads logs. One process may hold several; a session has one writer."""

    def __init__(self, path: Path, clock: Callable[[], datetime] = utc_now) -> None:
        """Opens the store, creating it readable by its owner alone.

        Args:
            path: the SQLite file; its folder exists.
            clock: gives the time of an append.
        """
        self._clock = clock
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA busy_timeout=5000")
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(_SCHEMA)

    def append(self, session_id: str, next_seq: int, events: Sequence[Event]) -> list[Record]:
        """Appends events as one transaction and returns their records.

        Args:
            session_id: whose log.
            next_seq: the number the writer believes to be next.
            events: at least one.

        Raises:
            StaleWriterError: when the log already has an event of that number.
        """
        at = timestamp(self._clock())
        records = [
            Record(session_id=session_id, seq=next_seq + index, at=at, event=event)
            for index, event in enumerate(events)
        ]
        rows = [(session_id, record.seq, encode(record)) for record in records]
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany("INSERT INTO event VALUES (?, ?, ?)", rows)
            self._connection.execute("COMMIT")
        except BaseException as error:
            # A full disk may have ended the transaction already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.IntegrityError):
                raise StaleWriterError(session_id) from None
            raise
        return records

    def read(self, session_id: str, after_seq: int = 0, limit: int = 1000) -> list[Record]:
        """Returns up to `limit` records with a number above `after_seq`, in order.

        At least one when there is one, and not many more than `READ_CHARACTERS` of them.
        """
        rows = self._connection.execute(
            "SELECT body FROM event WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?",
            (session_id, after_seq, limit),
        )
        records: list[Record] = []
        left = READ_CHARACTERS
        for (body,) in rows:
            records.append(Record.model_validate_json(body))
            left -= len(body)
            if left < 0:
                break
        return records

    def close(self) -> None:
        """Closes the file; nothing acknowledged is lost without it."""
        self._connection.close()


def encode(record: Record) -> str:
    """Writes a record as one line of canonical JSON."""
    return canonical_bytes(record.model_dump(mode="json")).decode()
