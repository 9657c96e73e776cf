"""The jailer's work: takes requests for jails from its worker, and watches the jails."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import time
from pathlib import Path
from typing import Final

from subako_ray.sandbox.cgroup import Leaf
from subako_ray.sandbox.config import nsjail_config
from subako_ray.sandbox.handover import STARTED, Refusal, decode_spec, encode_refusal
from subako_ray.sandbox.host import Host
from subako_ray.sandbox.jail import Jail
from subako_ray.sandbox.poller import Poller
from subako_ray.sandbox.spawn import Spawned
from subako_ray.sandbox.spec import BindMount, JailSpec, JailUnavailable
from subako_ray.sandbox.stage import StagedSource

REQUEST_DESCRIPTORS: Final = 4
"""The lease, the jail's standard input and output, and a file that holds its specification."""

CLOSING_SECONDS: Final = 4.0
DYING_SWEEP_SECONDS: Final = 0.02


class Supervisor:
    """Serves one worker until its socket closes, which ends every jail."""

    def __init__(self, control: socket.socket, host: Host) -> None:
        self._control = control
        self._host = host
        self._jails: list[Jail] = []
        self._poller = Poller(self._reap)
        self._closing: float | None = None
        self._dying: list[Leaf] = []
        """Cgroups of jails that were given up before they were made; their nsjail is dying."""
        control.setblocking(False)
        self._poller.watch(control.fileno(), self._on_control)

    def run(self) -> None:
        """Returns when the worker is gone and nothing is left of its jails, or after a while."""
        while self._closing is None or (
            (self._jails or self._dying) and time.monotonic() < self._closing
        ):
            now = time.monotonic()
            for jail in list(self._jails):
                if jail.wake is not None and jail.wake <= now:
                    jail.on_time(now)
            self._dying = [leaf for leaf in self._dying if not leaf.remove()]
            self._jails = [jail for jail in self._jails if jail.state != "gone"]
            wakes = [jail.wake for jail in self._jails if jail.wake is not None]
            if self._dying:
                wakes.append(time.monotonic() + DYING_SWEEP_SECONDS)
            if self._closing is not None:
                wakes.append(self._closing)
                if not (self._jails or self._dying):
                    break
            self._poller.wait(min(wakes) - time.monotonic() if wakes else None)
        self._host.close()

    def _on_control(self) -> None:
        try:
            data, descriptors = _receive(self._control)
        except BlockingIOError:
            return
        except ConnectionError:
            data, descriptors = b"", []
        if not data:
            self._poller.forget(self._control.fileno())
            self._closing = time.monotonic() + CLOSING_SECONDS
            for jail in list(self._jails):
                jail.stop("killed")
            return
        if len(descriptors) != REQUEST_DESCRIPTORS:
            # Too few when this process has no room for more; the closed lease tells the worker.
            for descriptor in descriptors:
                os.close(descriptor)
            return
        lease = socket.socket(fileno=descriptors[0])
        try:
            self._start(lease, *descriptors[1:])
        except JailUnavailable as refused:
            refusal = Refusal(message=refused.message, help_text=refused.help_text)
            with contextlib.suppress(OSError):
                lease.send(encode_refusal(refusal), socket.MSG_DONTWAIT)
            lease.close()
        finally:
            for descriptor in descriptors[1:]:
                os.close(descriptor)

    def _start(self, lease: socket.socket, stdin: int, stdout: int, specification: int) -> None:
        spec = decode_spec(_read_all(specification))
        leaf, spawned = self._spawn(spec, stdin, stdout)
        # nsjail links its libraries while the rest is made ready.
        try:
            sources = self._show_sources(spec)
        except JailUnavailable:
            spawned.discard()
            if leaf is not None:
                self._dying.append(leaf)
            raise
        lease.setblocking(False)
        with contextlib.suppress(OSError):
            lease.send(STARTED)
        jail = Jail(
            lease=lease,
            spawned=spawned,
            leaf=leaf,
            limits=spec.limits,
            unenforced=self._host.unenforced,
            poller=self._poller,
            reap=self._reap,
            orphans=self._orphans,
        )
        self._jails.append(jail)
        jail.configure(json.dumps(nsjail_config(spec, self._host.facts, sources)).encode())
        self._host.stage.trim()

    def _spawn(self, spec: JailSpec, stdin: int, stdout: int) -> tuple[Leaf | None, Spawned]:
        leaf: Leaf | None = None
        try:
            leaf = self._host.leaf(spec.limits.memory_bytes, spec.limits.processes)
            return leaf, self._host.spawn(leaf, stdin=stdin, stdout=stdout)
        except OSError as error:
            if leaf is not None:
                self._dying.append(leaf)
            raise JailUnavailable(
                f"a jail cannot be started: {error.strerror}",
                "see whether this service has memory, processes and open files left, and whether "
                "`subako doctor` still finds its cgroup",
            ) from error

    def _show_sources(self, spec: JailSpec) -> dict[Path, StagedSource]:
        shown: dict[Path, StagedSource] = {}
        for mount in spec.mounts:
            if isinstance(mount, BindMount):
                try:
                    shown[mount.source] = self._host.stage.show(mount.source)
                except OSError as error:
                    raise JailUnavailable(
                        f"`{mount.source}` cannot be shown in a jail: {error.strerror or error}",
                        "check that it exists, that other users may read it (`chmod -R o+rX`), and "
                        "that no other file system is mounted below it",
                    ) from error
        return shown

    def _reap(self) -> None:
        while True:
            try:
                process_id, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process_id == 0:
                return
            for jail in self._jails:
                if jail.process_id == process_id and not jail.is_reaped:
                    jail.on_reaped()

    def _orphans(self) -> set[int]:
        """Finds processes that nsjail left: they became children of this process."""
        return _children() - {jail.process_id for jail in self._jails if not jail.is_reaped}


def _children() -> set[int]:
    with contextlib.suppress(FileNotFoundError):
        return set(map(int, Path("/proc/thread-self/children").read_text().split()))
    return set()


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    """Receives one message and its descriptors, closed on exec from the first moment."""
    room = array.array("i", [0] * REQUEST_DESCRIPTORS)
    data, ancillary, _, _ = control.recvmsg(
        64, socket.CMSG_SPACE(len(room) * room.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    received = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            received.frombytes(content[: len(content) - len(content) % received.itemsize])
    return data, received.tolist()


def _read_all(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    parts: list[bytes] = []
    offset = 0
    while offset < size and (part := os.pread(descriptor, size - offset, offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
