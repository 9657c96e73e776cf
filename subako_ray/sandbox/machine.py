"""A machine: one long-lived jail whose files and background processes outlast its commands.

`Machine` talks to `guest/machine_init.py`, which is PID 1 in there and documents the protocol.
Whatever the jail says is held to be hostile: its length is bounded before it is read, its shape
is checked, and each command has a deadline on this side too.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from subako_ray.sandbox.lease import Jailer, JailLease
from subako_ray.sandbox.machine_replies import (
    FRAME_BYTES,
    ExecResult,
    ReplyError,
    parse_ended,
    read_message,
)
from subako_ray.sandbox.spec import (
    FileMount,
    JailLimits,
    JailReport,
    JailSpec,
    JailUnavailable,
    TemporaryMount,
    Verdict,
)

__all__ = ["ExecResult", "Machine", "MachineLimits", "MachineLost"]

WORKSPACE = "/workspace"
INIT_SOURCE = Path(__file__).parent / "guest" / "machine_init.py"
INIT_TARGET = "/subako/machine_init.py"

MEBIBYTE = 1 << 20
BYTES_PER_INODE = 4096
OPEN_FILES = 1024
STDERR_BYTES = 16_384

START_SECONDS = 30.0
GRACE_SECONDS = 10.0
"""How much longer than its own timeout a command may stay silent before the machine is lost."""

ENDING_SECONDS = 2.0
"""How long a jail that closed its pipe has to end by itself, so that its own verdict is kept."""

DETAIL_BYTES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLimits:
    """What a machine may use; `/workspace` and `/tmp` are memory and count against it."""

    memory_mib: int = 512
    processes: int = 256
    workspace_mib: int = 256
    temporary_mib: int = 64


class MachineLost(Exception):  # noqa: N818 - the word that callers read
    """The machine has ended, before or while a command ran in it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(slots=True, kw_only=True)
class _Running:
    """A command whose end has not been reported yet, wanted (`future`) or cancelled."""

    future: asyncio.Future[ExecResult]
    output_bytes: int
    started: float
    timer: asyncio.TimerHandle


class Machine:
    """A long-lived jail that runs shell commands; several at once, if asked to."""

    def __init__(self, lease: JailLease) -> None:
        """Takes over a lease whose jail has said that it is ready; see `start`."""
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._running: dict[int, _Running] = {}
        self._ending: asyncio.Task[None] | None = None
        self._lost = "the machine has ended"
        self._reading = asyncio.create_task(self._read_replies())

    @classmethod
    async def start(cls, jailer: Jailer, limits: MachineLimits) -> Machine:
        """Starts a machine and waits until it takes commands.

        Raises:
            JailUnavailable: this host cannot make the jail, or the jail did not come up.
        """
        lease = await jailer.acquire(_machine_spec(limits))
        try:
            async with asyncio.timeout(START_SECONDS):
                hello = await read_message(lease.reader, lambda: FRAME_BYTES)
            if hello.get("type") != "ready":
                raise ReplyError("the first message is not `ready`")
        except (TimeoutError, asyncio.IncompleteReadError, OSError, ReplyError) as error:
            report = await lease.release()
            raise JailUnavailable(
                f"the machine did not start: {_cause(report)}{_stderr_detail(report)}",
                "run `subako doctor` to see whether this host can isolate",
            ) from error
        except BaseException:
            await lease.release()
            raise
        return cls(lease)

    @property
    def alive(self) -> bool:
        """Whether the machine takes commands, as far as this side knows."""
        return self._ending is None

    async def exec(self, command: str, *, timeout_seconds: float, output_bytes: int) -> ExecResult:
        """Runs a shell command in `/workspace` and waits until its shell has ended.

        Cancelling kills the command with all that it started and leaves the machine as it is.

        Args:
            command: What the shell is given; standard input is empty.
            timeout_seconds: When the command is killed, counted from its start.
            output_bytes: How much of each output stream is kept.

        Raises:
            MachineLost: the machine ended before the command did.
            ValueError: a limit is not a positive number.
        """
        if not (math.isfinite(timeout_seconds) and timeout_seconds > 0 and output_bytes > 0):
            raise ValueError("`timeout_seconds` and `output_bytes` must be positive and finite")
        if self._ending is not None:
            await asyncio.shield(self._ending)
            raise MachineLost(self._lost)
        number = next(self._numbers)
        running = _Running(
            future=self._loop.create_future(),
            output_bytes=output_bytes,
            started=self._loop.time(),
            timer=self._loop.call_later(timeout_seconds + GRACE_SECONDS, self._give_up),
        )
        self._running[number] = running
        self._send(
            {
                "type": "exec",
                "id": number,
                "command": command,
                "timeout_seconds": timeout_seconds,
                "output_bytes": output_bytes,
            }
        )
        try:
            return await running.future
        except asyncio.CancelledError:
            if number in self._running:
                self._send({"type": "cancel", "id": number})
                running.timer.cancel()
                running.timer = self._loop.call_later(GRACE_SECONDS, self._give_up)
            raise

    async def close(self) -> None:
        """Ends the machine with everything in it; commands that run end as `MachineLost`."""
        await asyncio.shield(self._end("the machine was closed"))

    def _send(self, message: dict[str, object]) -> None:
        # Never drained: a jail that does not read would hold its caller, and what piles up is
        # bounded by the commands that wait.
        data = json.dumps(message).encode()
        self._lease.writer.write(len(data).to_bytes(4, "big") + data)

    async def _read_replies(self) -> None:
        reason: str | None = None
        try:
            while True:
                self._settle(await read_message(self._lease.reader, self._reply_limit_bytes))
        except ReplyError as error:
            reason = f"the machine broke its protocol: {error}"
        except (asyncio.IncompleteReadError, OSError):
            pass
        self._end(reason)

    def _reply_limit_bytes(self) -> int:
        most = max((running.output_bytes for running in self._running.values()), default=0)
        # Two streams, each a third longer in base64.
        return FRAME_BYTES + 3 * most

    def _settle(self, message: dict[str, object]) -> None:
        """Hands a reply to the command that waits for it; a reply nobody waits for is dropped."""
        number = message.get("id")
        if not isinstance(number, int) or number not in self._running:
            return
        running = self._running[number]
        result = parse_ended(message, running.output_bytes, self._loop.time() - running.started)
        del self._running[number]
        running.timer.cancel()
        if not running.future.done():
            running.future.set_result(result)

    def _give_up(self) -> None:
        self._end("the machine did not answer in time")

    def _end(self, reason: str | None) -> asyncio.Task[None]:
        """Starts the machine's end, once; without a reason it is the jail's own."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._finish(reason))
        return self._ending

    async def _finish(self, reason: str | None) -> None:
        try:
            if reason is None:
                try:
                    async with asyncio.timeout(ENDING_SECONDS):
                        await self._lease.ended()
                except TimeoutError:
                    reason = "the machine closed its pipe"
            report = await self._lease.release()
            self._lost = reason or f"the machine ended: {_cause(report)}{_stderr_detail(report)}"
        finally:
            self._reading.cancel()
            for running in self._running.values():
                running.timer.cancel()
                if not running.future.done():
                    running.future.set_exception(MachineLost(self._lost))
            self._running.clear()


def _machine_spec(limits: MachineLimits) -> JailSpec:
    workspace_bytes = limits.workspace_mib * MEBIBYTE
    temporary_bytes = limits.temporary_mib * MEBIBYTE
    return JailSpec(
        argv=("python3", "-I", "-S", "-E", INIT_TARGET),
        cwd=WORKSPACE,
        environment=(("HOME", WORKSPACE), ("PWD", WORKSPACE)),
        mounts=(
            TemporaryMount(
                target=WORKSPACE,
                size_bytes=workspace_bytes,
                inodes=workspace_bytes // BYTES_PER_INODE,
            ),
            FileMount(target=INIT_TARGET, content=INIT_SOURCE.read_bytes()),
        ),
        limits=JailLimits(
            wall_seconds=None,
            memory_bytes=limits.memory_mib * MEBIBYTE,
            processes=limits.processes,
            cpu_seconds=None,
            # Above the file systems' own sizes, so that a full one says that it is full.
            file_bytes=workspace_bytes + temporary_bytes,
            open_files=OPEN_FILES,
            temporary_bytes=temporary_bytes,
            stderr_bytes=STDERR_BYTES,
        ),
    )


def _cause(report: JailReport) -> str:
    """Says in words why a jail ended."""
    verdict: Verdict = report.verdict
    match verdict:
        case "exited":
            return f"its first process exited with code {report.exit_code}"
        case "signalled":
            return f"its first process was ended by {report.signal}"
        case "timed_out":
            return "its time was up"
        case "out_of_memory":
            return "it was out of memory"
        case "output_limit":
            return "it wrote too much"
        case "killed":
            return "it was killed"
        case "jail_failed":
            return report.detail or "the jail could not be set up"
        case "supervisor_lost":
            return "the process that supervises jails is gone"
        case _:
            assert_never(verdict)


def _stderr_detail(report: JailReport) -> str:
    """The last line that a jail's first process wrote, made fit for one line of a message."""
    lines = report.stderr[-DETAIL_BYTES:].decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f" (`{ascii(last)[1:-1]}`)" if last else ""
