"""Leasing jails: the worker's side of the jailer.

A lease is one socket whose other end is the jailer's. Closing it, or dying, ends the jail.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from dataclasses import dataclass
from io import FileIO
from typing import Final

from subako_ray.sandbox.handover import STARTED, decode_refusal, decode_report, encode_spec
from subako_ray.sandbox.launch import (
    FINDINGS_BYTES,
    START_SECONDS,
    Launched,
    check_findings,
    launch,
)
from subako_ray.sandbox.spec import IsolationSettings, JailReport, JailSpec, JailUnavailable

REQUEST: Final = b"jail"

RELEASE_SECONDS: Final = 6.0
"""How long a release waits for a report; a jailer that lives gives up on a jail long before."""

EXIT_SECONDS: Final = 10.0

LOST: Final = JailReport(verdict="supervisor_lost", detail="the jailer ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """The worker's ends of one jail."""

    lease_reader: asyncio.StreamReader
    lease_writer: asyncio.StreamWriter
    stdout_reader: asyncio.StreamReader
    stdout_transport: asyncio.ReadTransport
    stdin_writer: asyncio.StreamWriter

    def close(self) -> None:
        self.lease_writer.transport.abort()
        self.stdout_transport.close()
        # What the jail did not read is not waited for. One that is closing already ends with the
        # jail, and cannot be aborted once it has.
        if not self.stdin_writer.transport.is_closing():
            self.stdin_writer.transport.abort()


class JailLease:
    """One running jail.

    Attributes:
        reader: the first process's standard output.
        writer: its standard input.
    """

    def __init__(self, ends: _Ends) -> None:
        """Takes over a jail that was started; see `Jailer.acquire`."""
        self.reader = ends.stdout_reader
        self.writer = ends.stdin_writer
        self._ends = ends
        self._reporting = asyncio.create_task(self._read_report())
        self._releasing: asyncio.Task[JailReport] | None = None

    async def ended(self) -> JailReport:
        """Waits for the jail's own end: it exited, or a limit ended it."""
        return await asyncio.shield(self._reporting)

    async def release(self) -> JailReport:
        """Ends the jail if it still runs, and waits (bounded) until nothing of it is left.

        May be called again, and by several tasks; cancelling the caller does not stop it.
        """
        if self._releasing is None:
            self._releasing = asyncio.create_task(self._release())
        return await asyncio.shield(self._releasing)

    async def _read_report(self) -> JailReport:
        try:
            data = await self._ends.lease_reader.read(-1)
        except OSError:
            data = b""
        return decode_report(data) if data else LOST

    async def _release(self) -> JailReport:
        try:
            # A jailer that is gone leaves a closed socket.
            with contextlib.suppress(OSError):
                self._ends.lease_writer.write_eof()
            async with asyncio.timeout(RELEASE_SECONDS):
                return await asyncio.shield(self._reporting)
        except TimeoutError:
            return LOST
        finally:
            self._ends.close()


class Jailer:
    """The helper process that makes and watches this worker's jails.

    If it dies its jails die with it, and the next `acquire` starts another.
    """

    def __init__(self, settings: IsolationSettings, launched: Launched) -> None:
        """Takes over a helper that is ready; see `start`."""
        self._settings = settings
        self._launched: Launched | None = launched
        self._replacing = asyncio.Lock()

    @classmethod
    async def start(cls, settings: IsolationSettings) -> Jailer:
        """Starts the helper and has it try the real jail once.

        Raises:
            JailUnavailable: this host cannot isolate; says what is missing.
        """
        return cls(settings, await _launch(settings))

    @property
    def process_id(self) -> int | None:
        """The helper's process, for whoever watches this host."""
        return self._launched.process.pid if self._launched else None

    async def acquire(self, spec: JailSpec) -> JailLease:
        """Starts a jail.

        Raises:
            JailUnavailable: the jail cannot be made; nothing was run.
        """
        launched = self._current()
        try:
            return JailLease(await _request(launched.control, spec))
        except ConnectionError:
            await self._replace(launched)
        try:
            return JailLease(await _request(self._current().control, spec))
        except ConnectionError:
            raise JailUnavailable(
                "the jailer ended again at once", "see its standard error, then `subako doctor`"
            ) from None

    async def aclose(self) -> None:
        """Ends every jail and the helper."""
        launched, self._launched = self._launched, None
        if launched is not None:
            await asyncio.shield(asyncio.create_task(_end(launched)))

    def _current(self) -> Launched:
        if self._launched is None:
            raise JailUnavailable("the jailer was closed", "start another one")
        return self._launched

    async def _replace(self, dead: Launched) -> None:
        async with self._replacing:
            if self._launched is dead:
                await _end(dead)
                replacement = await _launch(self._settings)
                if self._launched is dead:
                    self._launched = replacement
                else:
                    await _end(replacement)


async def _launch(settings: IsolationSettings) -> Launched:
    launched = launch(settings)
    try:
        launched.control.setblocking(False)
        async with asyncio.timeout(START_SECONDS):
            loop = asyncio.get_running_loop()
            data = await loop.sock_recv(launched.control, FINDINGS_BYTES)
        check_findings(data)
    except TimeoutError:
        await _end(launched)
        raise JailUnavailable(
            "the jailer was not ready in time", "see whether this host is overloaded"
        ) from None
    except BaseException:
        await _end(launched)
        raise
    return launched


async def _end(launched: Launched) -> None:
    """Closes a helper's socket, and waits until it has cleared up and gone."""
    launched.control.close()
    try:
        await asyncio.to_thread(launched.process.wait, EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        launched.process.kill()
        await asyncio.to_thread(launched.process.wait)


async def _request(control: socket.socket, spec: JailSpec) -> _Ends:
    """Asks for a jail.

    Raises:
        JailUnavailable: it was refused, or its jailer ended over it.
        ConnectionError: the jailer had ended before; nothing was asked of it.
    """
    ours, theirs = socket.socketpair()
    stdin_read, stdin_write = os.pipe()
    stdout_read, stdout_write = os.pipe()
    specification = os.memfd_create("specification")
    with contextlib.ExitStack() as own, contextlib.ExitStack() as handed_over:
        own.callback(ours.close)
        stdin = own.enter_context(FileIO(stdin_write, "w"))
        stdout = own.enter_context(FileIO(stdout_read, "r"))
        handed_over.callback(theirs.close)
        for descriptor in (stdin_read, stdout_write, specification):
            handed_over.callback(os.close, descriptor)
        # A file in memory takes all of it at once, however long.
        os.write(specification, encode_spec(spec))
        await _send(control, [theirs.fileno(), stdin_read, stdout_write, specification])
        handed_over.close()
        ends = await _connect(ours, stdin, stdout)
        # The transports own them now.
        own.pop_all()
    try:
        answer = await ends.lease_reader.readline()
    except OSError:
        answer = b""
    except BaseException:
        ends.close()
        raise
    if answer == STARTED:
        return ends
    ends.close()
    if not answer:
        raise JailUnavailable("the jailer did not take the request", "run `subako doctor`")
    refusal = decode_refusal(answer)
    raise JailUnavailable(refusal.message, refusal.help_text)


async def _send(control: socket.socket, descriptors: list[int]) -> None:
    while True:
        try:
            socket.send_fds(control, [REQUEST], descriptors)
        except BlockingIOError:
            await _writable(control)
        else:
            return


async def _writable(control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    # A descriptor has one writer in the loop, and several tasks may wait: each watches a copy.
    with control.dup() as copy:
        ready = asyncio.Event()
        loop.add_writer(copy, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(copy)


async def _connect(lease: socket.socket, stdin: FileIO, stdout: FileIO) -> _Ends:
    loop = asyncio.get_running_loop()
    stdout_reader = asyncio.StreamReader()
    with contextlib.ExitStack() as undo:
        # A transport must leave the loop before its descriptor is closed.
        lease_reader, lease_writer = await asyncio.open_unix_connection(sock=lease)
        undo.callback(lease_writer.transport.abort)
        stdout_transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stdout_reader), stdout
        )
        undo.callback(stdout_transport.close)
        stdin_transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), stdin
        )
        undo.pop_all()
    return _Ends(
        lease_reader=lease_reader,
        lease_writer=lease_writer,
        stdout_reader=stdout_reader,
        stdout_transport=stdout_transport,
        stdin_writer=asyncio.StreamWriter(stdin_transport, protocol, None, loop),
    )
