"""One jail in the jailer, from the start of its nsjail to its report."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Final, Literal

from subako_ray.sandbox.cgroup import Leaf
from subako_ray.sandbox.handover import encode_report
from subako_ray.sandbox.poller import Poller
from subako_ray.sandbox.spawn import Spawned
from subako_ray.sandbox.spec import JailLimits, JailReport
from subako_ray.sandbox.verdict import Evidence, judge

CHUNK_BYTES: Final = 65_536
LOG_BYTES: Final = 65_536
"""How much of the end of nsjail's log is kept; a whole one is a tenth of it."""

DYING_SECONDS: Final = 2.0
"""How long a killed jail may take to be gone before it is reported as leaked."""

FIRST_SWEEP_SECONDS: Final = 0.0005
LAST_SWEEP_SECONDS: Final = 0.02
"""How soon a killed jail is looked at again, at first and at last; doubled in between."""

ABANDONED_SWEEP_SECONDS: Final = 1.0

State = Literal["running", "dying", "clearing", "abandoned", "gone"]
"""`dying`: killed, nsjail not reaped. `clearing`: reaped, its cgroup not removed. `abandoned`:
reported as leaked, tried again now and then. `gone`: nothing is left.
"""


class Jail:
    """A jail that has been spawned."""

    def __init__(
        self,
        *,
        lease: socket.socket,
        spawned: Spawned,
        leaf: Leaf | None,
        limits: JailLimits,
        unenforced: tuple[str, ...],
        poller: Poller,
        reap: Callable[[], None],
        orphans: Callable[[], set[int]],
    ) -> None:
        """Takes what was made for it.

        Args:
            lease: the worker's hold on it; the report goes there.
            spawned: its nsjail, which waits for its configuration.
            leaf: its cgroup, on hosts that have them.
            limits: those that the jailer itself holds it to.
            unenforced: for the report.
            poller: where it waits.
            reap: notices which nsjails have ended.
            orphans: finds processes of jails whose nsjail has ended.
        """
        self.process_id = spawned.process_id
        self.state: State = "running"
        self._lease = lease
        self._leaf = leaf
        self._limits = limits
        self._unenforced = unenforced
        self._poller = poller
        self._reap = reap
        self._orphans = orphans
        self._started = time.monotonic()
        self._ended: float | None = None
        self._stopped: Literal["timed_out", "killed"] | None = None
        self._config_descriptor: int | None = spawned.config
        self._log_descriptor = spawned.log
        self._stderr_descriptor = spawned.stderr
        self._config = b""
        self._log = bytearray()
        self._stderr = bytearray()
        self._stderr_cut = False
        self._outgoing = b""
        self._wake: float | None = None
        if limits.wall_seconds is not None:
            self._wake = self._started + limits.wall_seconds
        self._give_up = 0.0
        self._sweep_seconds = FIRST_SWEEP_SECONDS
        poller.watch(lease.fileno(), self._on_lease)
        poller.watch(self._log_descriptor, self._on_log)
        poller.watch(self._stderr_descriptor, self._on_stderr)

    @property
    def is_reaped(self) -> bool:
        """Whether its nsjail has ended, so that another process may have its number."""
        return self._ended is not None

    @property
    def wake(self) -> float | None:
        """When `on_time` wants to be called, on the monotonic clock."""
        return self._wake

    def configure(self, config: bytes) -> None:
        """Gives nsjail its configuration, whereupon it makes the jail."""
        self._config = config
        self._write_config()
        if self._config_descriptor is not None:
            self._poller.watch(self._config_descriptor, self._write_config, writable=True)

    def stop(self, reason: Literal["timed_out", "killed"]) -> None:
        """Kills the jail, unless it has ended already."""
        # What ended by itself a moment ago keeps its own verdict.
        self._reap()
        if self.state != "running":
            return
        self.state = "dying"
        self._stopped = reason
        self._give_up = time.monotonic() + DYING_SECONDS
        self._kill()

    def on_time(self, now: float) -> None:
        """Does what was due at `wake`."""
        match self.state:
            case "running":
                self.stop("timed_out")
            case "dying":
                self._kill()
                if now >= self._give_up:
                    self._report()
                    self._abandon()
            case "clearing":
                self._clear(now)
            case "abandoned":
                self._kill()
                self._wake = now + ABANDONED_SWEEP_SECONDS
                if self._ended is not None and (self._leaf is None or self._leaf.remove()):
                    self._finish()
            case "gone":
                self._wake = None

    def on_reaped(self) -> None:
        """Notes that nsjail has ended."""
        self._ended = time.monotonic()
        if self.state == "abandoned":
            return
        self.state = "clearing"
        self._sweep_seconds = FIRST_SWEEP_SECONDS
        self._give_up = self._ended + DYING_SECONDS
        self._clear(self._ended)

    def _kill(self) -> None:
        # Both always: the group holds a jail that is being made, the leaf one that has been.
        if self._ended is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process_id, signal.SIGKILL)
        for process_id in self._orphans():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        if self._leaf is not None:
            self._leaf.kill()
        self._wake = time.monotonic() + self._sweep_seconds
        self._sweep_seconds = min(2 * self._sweep_seconds, LAST_SWEEP_SECONDS)

    def _clear(self, now: float) -> None:
        if self._leaf is None:
            # Whose they are is not known; none may be left when a jail is reported as gone.
            if not self._orphans() or now >= self._give_up:
                self._report()
                self._finish()
            else:
                self._kill()
            return
        if not self._leaf.processes():
            # The counters go with the leaf, and only now is there nothing that could add to them.
            memory_kills, peak_bytes = self._leaf.memory_kills(), self._leaf.peak_bytes()
            if self._leaf.remove():
                self._report(memory_kills, peak_bytes)
                self._finish()
                return
        if now >= self._give_up:
            self._report(self._leaf.memory_kills(), self._leaf.peak_bytes())
            self._abandon()
            return
        self._kill()

    def _abandon(self) -> None:
        self.state = "abandoned"
        self._wake = time.monotonic() + ABANDONED_SWEEP_SECONDS

    def _finish(self) -> None:
        self.state = "gone"
        self._wake = None

    def _report(self, memory_kills: int = 0, peak_bytes: int | None = None) -> None:
        self._drain()
        judgement = judge(
            Evidence(stopped=self._stopped, log=bytes(self._log), memory_kills=memory_kills)
        )
        left = self._orphans() if self._leaf is None else self._leaf.processes()
        ended = self._ended
        report = JailReport(
            verdict=judgement.verdict,
            exit_code=judgement.exit_code,
            signal=judgement.signal,
            stderr=bytes(self._stderr),
            stderr_cut=self._stderr_cut,
            peak_memory_bytes=peak_bytes,
            wall_seconds=round((ended or time.monotonic()) - self._started, 6),
            leaked_processes=len(left | ({self.process_id} if ended is None else set())),
            unenforced=self._unenforced,
            detail=judgement.detail,
        )
        self._poller.forget(self._lease.fileno())
        self._outgoing = encode_report(report)
        self._send()
        if self._outgoing:
            self._poller.watch(self._lease.fileno(), self._send, writable=True)

    def _drain(self) -> None:
        """Reads what is in the pipes and closes them, whoever may still hold the other ends."""
        self._close_config()
        for descriptor, read in (
            (self._log_descriptor, self._on_log),
            (self._stderr_descriptor, self._on_stderr),
        ):
            if descriptor < 0:
                continue
            # More than a pipe holds; what is still written then is of a leaked process.
            for _ in range(32):
                if not read():
                    break
        self._close_log()
        self._close_stderr()

    def _on_lease(self) -> None:
        with contextlib.suppress(BlockingIOError):
            with contextlib.suppress(ConnectionError):
                # Its holder never says anything: it closes its side, or dies.
                self._lease.recv(1)
            self._poller.forget(self._lease.fileno())
            self.stop("killed")

    def _on_log(self) -> bool:
        data = _read(self._log_descriptor)
        if data == b"":
            self._close_log()
        elif data is not None:
            self._log += data
            del self._log[:-LOG_BYTES]
        return bool(data)

    def _on_stderr(self) -> bool:
        data = _read(self._stderr_descriptor)
        if data == b"":
            self._close_stderr()
        elif data is not None:
            room = self._limits.stderr_bytes - len(self._stderr)
            self._stderr += data[:room]
            self._stderr_cut = self._stderr_cut or len(data) > room
        return bool(data)

    def _write_config(self) -> None:
        if self._config_descriptor is None:
            return
        with contextlib.suppress(BlockingIOError):
            try:
                while self._config:
                    self._config = self._config[os.write(self._config_descriptor, self._config) :]
            except BrokenPipeError:
                pass
            self._close_config()

    def _send(self) -> None:
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[self._lease.send(self._outgoing) :]
        except BlockingIOError:
            return
        except OSError:
            # Nobody wants it any more.
            self._outgoing = b""
        self._poller.forget(self._lease.fileno())
        self._lease.close()

    def _close_config(self) -> None:
        if self._config_descriptor is not None:
            self._poller.forget(self._config_descriptor)
            os.close(self._config_descriptor)
            self._config_descriptor = None

    def _close_log(self) -> None:
        if self._log_descriptor >= 0:
            self._poller.forget(self._log_descriptor)
            os.close(self._log_descriptor)
            self._log_descriptor = -1

    def _close_stderr(self) -> None:
        if self._stderr_descriptor >= 0:
            self._poller.forget(self._stderr_descriptor)
            os.close(self._stderr_descriptor)
            self._stderr_descriptor = -1


def _read(descriptor: int) -> bytes | None:
    """Returns what is there, `b""` at the end, and None when there is nothing yet."""
    if descriptor < 0:
        return b""
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except BlockingIOError:
        return None
