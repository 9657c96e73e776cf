"""The event store: append-only, one writer, private, and the same records out as in."""

from __future__ import annotations

import sqlite3
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from subako_ray.executor.event_store import EventStore, StaleWriterError, encode
from subako_ray.executor.session_log import SessionLog
from subako_ray.schema.events import CallRequested, Record, SessionEnded, SessionNamed


def test_records_come_out_as_they_went_in(tmp_path: Path) -> None:
    store = EventStore(tmp_path / "e.db", clock=lambda: datetime(2026, 1, 2, 3, 4, 5, 6789, UTC))
    event = CallRequested(
        call_id="c", name="n", arguments={"n": 2**80, "é": None}, args_hash="h", requested_by="e"
    )
    (written,) = store.append("s", 1, [event])
    assert store.read("s") == [written]
    assert written.at == "2026-01-02T03:04:05.006Z"
    assert Record.model_validate_json(encode(written)) == written
    assert store.read("other") == []


def test_a_stale_writer_is_refused_and_writes_nothing(store: EventStore) -> None:
    first, second = SessionLog(store, "s"), SessionLog(store, "s")
    first.append(SessionNamed(name="one"))
    with pytest.raises(StaleWriterError):
        second.append(SessionNamed(name="two"), SessionNamed(name="three"))
    assert [record.seq for record in store.read("s")] == [1]
    first.append(SessionNamed(name="four"))


def test_events_cannot_be_changed(tmp_path: Path, store: EventStore) -> None:
    store.append("s", 1, [SessionNamed(name="one")])
    with (
        sqlite3.connect(tmp_path / "events.db") as other,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        other.execute("UPDATE event SET body = '{}'")


def test_the_store_is_readable_by_its_owner_alone(tmp_path: Path, store: EventStore) -> None:
    store.append("s", 1, [SessionNamed(name="one")])
    for file in tmp_path.glob("events.db*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


async def test_a_follower_sees_what_was_and_what_comes_until_the_end(store: EventStore) -> None:
    log = SessionLog(store, "s")
    log.append(SessionNamed(name="one"), SessionNamed(name="two"))
    following = log.follow(1)
    assert [record.seq for record in await anext(following)] == [2]
    log.append(SessionNamed(name="three"))
    assert [record.seq for record in await anext(following)] == [3]
    log.append(SessionEnded(reason="closed"))
    assert [record.seq for record in await anext(following)] == [4]
    with pytest.raises(StopAsyncIteration):
        await anext(following)


def test_a_store_that_was_full_takes_events_again(tmp_path: Path, store: EventStore) -> None:
    store.append("s", 1, [SessionNamed(name="one")])
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.append("s", 2, [SessionNamed(name="x" * 1_000_000)])
    store._connection.execute(f"PRAGMA max_page_count={pages + 1000}")
    store.append("s", 2, [SessionNamed(name="two")])
    assert [record.seq for record in store.read("s")] == [1, 2]


def test_a_reader_gets_large_events_in_portions(store: EventStore) -> None:
    store.append("s", 1, [SessionNamed(name="x" * 1_000_000) for _ in range(10)])
    sizes, after = [], 0
    while records := store.read("s", after):
        sizes.append(len(records))
        after = records[-1].seq
    assert sum(sizes) == 10
    assert max(sizes) < 6
