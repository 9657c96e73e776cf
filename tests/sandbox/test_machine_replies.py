"""A machine whose first process has turned hostile: a scripted one, as no real one will."""

import asyncio
import base64
import json
from typing import cast

import pytest

from subako_ray.sandbox import machine as machine_module
from subako_ray.sandbox.lease import JailLease
from subako_ray.sandbox.machine import ExecResult, Machine, MachineLost
from subako_ray.sandbox.spec import JailReport

GOOD: dict[str, object] = {
    "type": "ended",
    "id": 1,
    "exit_code": 0,
    "signal": None,
    "timed_out": False,
    "stdout": base64.b64encode(b"out").decode(),
    "stderr": "",
    "stdout_cut_bytes": 0,
    "stderr_cut_bytes": 0,
}


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def message(**changes: object) -> bytes:
    return frame(json.dumps(GOOD | changes).encode())


class ScriptedLease:
    """Stands in for a lease: its jail says what a test tells it to, and counts releases."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.writer = self
        self.written = b""
        self.releases = 0
        self.releases_unasked = 0

    def write(self, data: bytes) -> None:
        self.written += data

    async def ended(self) -> JailReport:
        await asyncio.Event().wait()
        raise AssertionError

    async def release(self) -> JailReport:
        self.releases += 1
        return JailReport(verdict="killed")


@pytest.fixture
async def lease() -> ScriptedLease:
    return ScriptedLease()


async def run(lease: ScriptedLease, said: bytes) -> ExecResult:
    machine = Machine(cast("JailLease", lease))
    command = asyncio.create_task(machine.exec("x", timeout_seconds=600, output_bytes=3))
    await asyncio.sleep(0)
    lease.reader.feed_data(said)
    try:
        async with asyncio.timeout(10):
            return await command
    finally:
        lease.releases_unasked = lease.releases
        await machine.close()


async def test_a_reply_within_its_bounds_is_a_result(lease: ScriptedLease) -> None:
    unknown = message(id=99) + message(id="1") + frame(b'{"type": "ended"}')
    assert (await run(lease, unknown + message())).stdout == b"out"
    assert lease.releases_unasked == 0


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff",
        (4096 + 3 * 3 + 1).to_bytes(4, "big"),
        frame(b"{"),
        frame(b"\xff"),
        frame(b"[]"),
        frame(b"1" * 4000),
        frame(b"[" * 4000),
        message(type="ready"),
        message(exit_code=256),
        message(exit_code=-1),
        message(exit_code=1.5),
        message(exit_code=True),
        message(exit_code="0"),
        message(signal=1 << 70),
        message(timed_out=None),
        message(stdout=None),
        message(stdout="not base64"),
        message(stdout="\u00e9"),
        message(stdout=base64.b64encode(b"four").decode()),
        message(stderr=base64.b64encode(b"four").decode()),
        message(stderr=["x"]),
        message(stdout_cut_bytes=-1),
        message(stderr_cut_bytes=float("nan")),
        message(stderr_cut_bytes="many"),
    ],
    ids=lambda said: repr(said[4:])[:200],
)
async def test_a_reply_out_of_bounds_ends_the_machine(lease: ScriptedLease, said: bytes) -> None:
    with pytest.raises(MachineLost, match="broke its protocol"):
        await run(lease, said)
    assert lease.releases_unasked == 1


async def test_silence_ends_the_machine_and_not_the_caller(
    lease: ScriptedLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_module, "GRACE_SECONDS", 0.05)
    machine = Machine(cast("JailLease", lease))
    with pytest.raises(MachineLost, match="did not answer in time"):
        await machine.exec("x", timeout_seconds=0.01, output_bytes=3)
    assert lease.releases == 1


async def test_an_unanswered_cancel_ends_the_machine(
    lease: ScriptedLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(cast("JailLease", lease))
    cancelled = asyncio.create_task(machine.exec("x", timeout_seconds=600, output_bytes=3))
    other = asyncio.create_task(machine.exec("y", timeout_seconds=600, output_bytes=3))
    await asyncio.sleep(0)
    monkeypatch.setattr(machine_module, "GRACE_SECONDS", 0.05)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert machine.alive
    assert lease.written.endswith(b'{"type": "cancel", "id": 1}')
    with pytest.raises(MachineLost, match="did not answer in time"):
        await other


async def test_a_cancelled_commands_late_reply_is_dropped(lease: ScriptedLease) -> None:
    machine = Machine(cast("JailLease", lease))
    cancelled = asyncio.create_task(machine.exec("x", timeout_seconds=600, output_bytes=3))
    other = asyncio.create_task(machine.exec("y", timeout_seconds=600, output_bytes=3))
    await asyncio.sleep(0)
    cancelled.cancel()
    lease.reader.feed_data(message(id=1) + message(id=2, exit_code=5) + message(id=2))
    assert (await other).exit_code == 5
    assert cancelled.cancelled()
    assert machine.alive
    await machine.close()


async def test_an_end_within_a_reply_ends_the_machine(
    lease: ScriptedLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_module, "ENDING_SECONDS", 0.01)
    lease.reader.feed_data(message()[:20])
    lease.reader.feed_eof()
    with pytest.raises(MachineLost, match="closed its pipe"):
        await Machine(cast("JailLease", lease)).exec("x", timeout_seconds=600, output_bytes=3)


async def test_a_limit_that_is_no_positive_number_is_refused(lease: ScriptedLease) -> None:
    machine = Machine(cast("JailLease", lease))
    for timeout_seconds, output_bytes in ((0, 1), (float("nan"), 1), (float("inf"), 1), (1, 0)):
        with pytest.raises(ValueError, match="positive"):
            await machine.exec("x", timeout_seconds=timeout_seconds, output_bytes=output_bytes)
    assert lease.written == b""
    await machine.close()
