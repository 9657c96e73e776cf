"""PID 1 of a machine: runs shell commands for the host and reports how each of them ended.

One standalone file of the standard library, run by the jail's interpreter. Requests come on
standard input and replies go to standard output, both as frames of a four-byte big-endian length
and that many bytes of JSON:

* `{"type": "exec", "id": 1, "command": "ls", "timeout_seconds": 5.0, "output_bytes": 65536}`
* `{"type": "cancel", "id": 1}`
* `{"type": "ready"}`, sent once, when commands can be taken
* `{"type": "ended", "id": 1, "exit_code": 0, "signal": null, "timed_out": false, "stdout": "…",
  "stderr": "…", "stdout_cut_bytes": 0, "stderr_cut_bytes": 0}`, streams in base64; exactly one
  for each `exec`

The host closing standard input ends this process, and with it everything in its PID namespace.

A command runs in a session of its own with empty standard input. It has ended when its shell has:
what it left behind in the background lives on, and what that goes on writing is read and dropped.
A command that takes too long or is cancelled is killed with all it started, which is found by
session, by descent, and by an environment variable that children inherit. A process that leaves
its session, loses its parent and drops that variable escapes the kill, and lives until the
machine ends.
"""

import base64
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from typing import NamedTuple

MARKER = "SUBAKO_EXEC"
SHELLS = ("/bin/bash", "/bin/sh")
CANNOT_EXECUTE = 126
"""The exit code that shells give to what they cannot run; here for a shell that did not start."""

RESERVED_PROCESSES = 4
"""Processes that only shells get, so that a machine full of processes can still be cleared."""

COMMANDS_AT_ONCE = 64
BACKGROUND_STREAMS = 128
CHUNK_BYTES = 65_536
"""How much a pipe holds: one read of this size takes all that a dead writer left in it."""

DRAIN_SECONDS = 0.1
"""How long output is waited for once the shell has ended, for writers that are just finishing."""

KILLED_SECONDS = 2.0
"""How long a killed shell may take to die: uninterruptible sleep outlasts SIGKILL."""

PATIENCE_SECONDS = 3600.0
"""The longest sleep of the loop; `poll` takes no timeout of months."""

KILLING_SECONDS = 1.0
"""How long the loop stands still for a kill, at most: what a command is killed for is over when
the next one starts.
"""

DYING_SECONDS = 0.001
PR_SET_DUMPABLE = 4


class ProcessEntry(NamedTuple):
    """What `/proc/PID/stat` says of a process."""

    pid: int
    parent: int
    session: int


class Stream:
    """One output stream of a command: keeps its first bytes and counts the rest."""

    def __init__(self, descriptor: int, limit_bytes: int) -> None:
        self.descriptor = descriptor
        self.limit_bytes = limit_bytes
        self.kept = bytearray()
        self.cut_bytes = 0
        self.is_open = True
        self.is_background = False

    def feed(self, data: bytes) -> None:
        """Takes what was read."""
        if self.is_background:
            return
        room = self.limit_bytes - len(self.kept)
        self.kept += data[:room]
        self.cut_bytes += max(0, len(data) - room)


class Command:
    """A command whose end has not been reported yet."""

    def __init__(self, number: int, pid: int, streams: tuple[Stream, Stream], due: float) -> None:
        self.number = number
        self.pid = pid
        self.streams = streams
        self.due = due
        """When it is next to be looked at (monotonic): its timeout, then the end of its drain."""
        self.status: int | None = None
        self.is_killed = False
        self.timed_out = False


def read_processes() -> list[ProcessEntry]:
    """Lists the living processes of this PID namespace, PID 1 left out.

    Raises:
        OSError: there is no `/proc`.
    """
    entries = []
    for folder in os.scandir("/proc"):
        name = folder.name
        if not name.isdigit() or name == "1":
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                text = file.read()
        except OSError:
            continue
        # proc(5): the name in parentheses may itself hold parentheses and spaces.
        fields = text[text.rindex(b")") + 2 :].split()
        if fields[0] not in (b"Z", b"X"):
            entries.append(ProcessEntry(int(name), int(fields[1]), int(fields[3])))
    return entries


def has_marker(pid: int, number: int) -> bool:
    """Whether a process inherited the variable that names the command `number`."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return False
    return f"{MARKER}={number}".encode() in environment.split(b"\0")


def find_members(command: Command) -> set[int]:
    """Finds the living processes that a command started."""
    entries = read_processes()
    members = {
        entry.pid
        for entry in entries
        if command.pid in (entry.pid, entry.session) or has_marker(entry.pid, command.number)
    }
    grew = True
    while grew:
        children = {entry.pid for entry in entries if entry.parent in members} - members
        members |= children
        grew = bool(children)
    return members


def send_signal(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process that may be gone."""
    with suppress(OSError):
        os.kill(pid, number)


def kill_tree(command: Command) -> None:
    """Kills a command's shell and all that it started.

    Everything is stopped before anything is killed, so that nothing forks out of the search and
    no child loses the parent that it is found by.
    """
    stopped: set[int] = set()
    deadline = time.monotonic() + KILLING_SECONDS
    while time.monotonic() < deadline:
        try:
            members = find_members(command)
        except OSError:
            # Without `/proc`, the shell's process group is all that can be named.
            with suppress(OSError):
                os.killpg(command.pid, signal.SIGKILL)
            return
        if not members:
            return
        fresh = members - stopped
        for pid in fresh:
            send_signal(pid, signal.SIGSTOP)
        stopped |= fresh
        if not fresh:
            for pid in members:
                send_signal(pid, signal.SIGKILL)
            stopped.clear()
            time.sleep(DYING_SECONDS)
    for pid in stopped:
        send_signal(pid, signal.SIGKILL)


class Machine:
    """The one loop that takes requests, reads output, reaps, keeps clocks and replies."""

    def __init__(self, requests: int, replies: int) -> None:
        self.requests = requests
        self.replies = replies
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.commands: dict[int, Command] = {}
        self.streams: dict[int, Stream] = {}
        self.background: deque[Stream] = deque()
        self.shell = next(path for path in SHELLS if os.access(path, os.X_OK))
        self.process_limit = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        self.wake, wake_writer = os.pipe()
        self.poll = select.poll()
        for descriptor in (requests, replies, self.wake, wake_writer):
            os.set_blocking(descriptor, False)
        self.poll.register(requests, select.POLLIN)
        # No event asked for: a host that stopped reading is reported all the same.
        self.poll.register(replies, 0)
        self.poll.register(self.wake, select.POLLIN)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Runs until the host is gone."""
        self.reply({"type": "ready"})
        while True:
            for descriptor, events in self.poll.poll(self.patience_milliseconds()):
                if descriptor == self.requests:
                    if not self.receive():
                        return
                elif descriptor == self.replies:
                    if events & (select.POLLERR | select.POLLHUP):
                        return
                    self.flush()
                elif descriptor == self.wake:
                    os.read(self.wake, CHUNK_BYTES)
                elif descriptor in self.streams:
                    self.pump(self.streams[descriptor])
            self.reap()
            self.look_at_commands()

    def patience_milliseconds(self) -> float | None:
        """How long the loop may sleep before a command is due."""
        if not self.commands:
            return None
        due = min(command.due for command in self.commands.values())
        return min(max(0.0, due - time.monotonic()), PATIENCE_SECONDS) * 1000

    def receive(self) -> bool:
        """Takes the requests that have arrived; False when the host closed its end."""
        data = os.read(self.requests, CHUNK_BYTES)
        self.inbox += data
        while len(self.inbox) >= 4:
            end = 4 + int.from_bytes(self.inbox[:4], "big")
            if len(self.inbox) < end:
                break
            request = json.loads(self.inbox[4:end])
            del self.inbox[:end]
            if request["type"] == "exec":
                self.start(request)
            elif request["id"] in self.commands:
                self.kill(self.commands[request["id"]])
        return bool(data)

    def reply(self, message: dict[str, object]) -> None:
        """Queues a message for the host."""
        data = json.dumps(message).encode()
        self.outbox += struct.pack(">I", len(data)) + data
        self.flush()

    def flush(self) -> None:
        """Writes what the host has room for."""
        # A host that is gone is noticed by `poll`.
        with suppress(BlockingIOError, BrokenPipeError):
            del self.outbox[: os.write(self.replies, self.outbox[:CHUNK_BYTES])]
        self.poll.modify(self.replies, select.POLLOUT if self.outbox else 0)

    def start(self, request: dict[str, object]) -> None:
        """Starts a command, or reports at once that it could not be started."""
        number, limit_bytes = request["id"], request["output_bytes"]
        text, timeout_seconds = request["command"], request["timeout_seconds"]
        assert isinstance(number, int)
        assert isinstance(limit_bytes, int)
        assert isinstance(text, str)
        assert isinstance(timeout_seconds, (int, float))
        opened: list[int] = []
        try:
            if len(self.commands) >= COMMANDS_AT_ONCE:
                raise OSError("too many commands at once")
            opened += os.pipe()
            opened += os.pipe()
            out, out_writer, err, err_writer = opened
            pid = self.spawn(number, text, out_writer, err_writer)
        except (OSError, ValueError) as error:
            # No room for another process, a command too long, or a character no argument holds.
            for descriptor in opened:
                os.close(descriptor)
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            text = f"cannot start a shell: {reason}\n"
            self.report(number, CANNOT_EXECUTE, None, False, (b"", 0), (text.encode(), 0))
            return
        os.close(out_writer)
        os.close(err_writer)
        streams = (Stream(out, limit_bytes), Stream(err, limit_bytes))
        for stream in streams:
            os.set_blocking(stream.descriptor, False)
            self.streams[stream.descriptor] = stream
            self.poll.register(stream.descriptor, select.POLLIN)
        due = time.monotonic() + timeout_seconds
        self.commands[number] = Command(number, pid, streams, due)

    def spawn(self, number: int, text: str, out_writer: int, err_writer: int) -> int:
        """Starts a shell, with what is reserved for shells if there is no other room.

        Raises:
            OSError: there is no room at all, or the command is too long.
            ValueError: it holds a character that no argument can hold.
        """
        for soft in (max(1, self.process_limit - RESERVED_PROCESSES), self.process_limit):
            # Children inherit this limit; the kernel asks it of whoever forks.
            resource.setrlimit(resource.RLIMIT_NPROC, (soft, self.process_limit))
            try:
                return os.posix_spawn(
                    self.shell,
                    [self.shell, "-c", "--", text],
                    {**os.environ, MARKER: str(number)},
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, out_writer, 1),
                        (os.POSIX_SPAWN_DUP2, err_writer, 2),
                    ],
                    setsid=True,
                    setsigmask=[],
                    # Python ignores these two, and an ignored signal stays so in children.
                    setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
                )
            except BlockingIOError:
                if soft == self.process_limit:
                    raise
        raise AssertionError("the last round returns or raises")

    def pump(self, stream: Stream) -> None:
        """Reads once from a stream that has something."""
        try:
            data = os.read(stream.descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            stream.feed(data)
        else:
            self.close(stream)

    def close(self, stream: Stream) -> None:
        """Stops reading a stream."""
        self.poll.unregister(stream.descriptor)
        del self.streams[stream.descriptor]
        os.close(stream.descriptor)
        stream.is_open = False
        if stream.is_background:
            self.background.remove(stream)

    def reap(self) -> None:
        """Collects every dead child: shells, and orphans that became children of PID 1."""
        by_pid = {command.pid: command for command in self.commands.values()}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            command = by_pid.get(pid)
            if command is not None and command.status is None:
                command.status = status
                command.due = time.monotonic() + DRAIN_SECONDS

    def look_at_commands(self) -> None:
        """Ends the commands that are through, and kills those whose time is up."""
        for command in list(self.commands.values()):
            is_due = time.monotonic() >= command.due
            if command.status is not None:
                if is_due or not any(stream.is_open for stream in command.streams):
                    self.finish(command)
            elif is_due and command.is_killed:
                self.finish(command)
            elif is_due:
                self.kill(command)
                command.timed_out = command.is_killed

    def kill(self, command: Command) -> None:
        """Kills a command that still runs; one whose shell has ended keeps its background."""
        self.reap()
        if command.status is None and not command.is_killed:
            command.is_killed = True
            command.due = time.monotonic() + KILLED_SECONDS
            kill_tree(command)
            self.reap()

    def finish(self, command: Command) -> None:
        """Reports a command's end and sends what still writes to its pipes to the background."""
        del self.commands[command.number]
        for stream in command.streams:
            if stream.is_open:
                self.pump(stream)
        code = None if command.status is None else os.waitstatus_to_exitcode(command.status)
        if command.timed_out:
            code = -signal.SIGKILL
        out, err = command.streams
        self.report(
            command.number,
            code if code is not None and code >= 0 else None,
            -code if code is not None and code < 0 else None,
            command.timed_out,
            (out.kept, out.cut_bytes),
            (err.kept, err.cut_bytes),
        )
        for stream in command.streams:
            if stream.is_open:
                # Closing instead would kill a server in the background at its next log line.
                stream.is_background = True
                stream.kept.clear()
                self.background.append(stream)
        while len(self.background) > BACKGROUND_STREAMS:
            self.close(self.background[0])

    def report(
        self,
        number: int,
        exit_code: int | None,
        signal_number: int | None,
        timed_out: bool,
        stdout: tuple[bytes | bytearray, int],
        stderr: tuple[bytes | bytearray, int],
    ) -> None:
        """Sends the one `ended` message of a command."""
        self.reply(
            {
                "type": "ended",
                "id": number,
                "exit_code": exit_code,
                "signal": signal_number,
                "timed_out": timed_out,
                "stdout": base64.b64encode(stdout[0]).decode(),
                "stderr": base64.b64encode(stderr[0]).decode(),
                "stdout_cut_bytes": stdout[1],
                "stderr_cut_bytes": stderr[1],
            }
        )


def main() -> None:
    """Takes the two pipes away from standard input and output, then serves."""
    if os.getpid() != 1:
        sys.exit("this program runs commands without asking: it is PID 1 of a jail or nothing")
    # Commands have this process's user id: only an undumpable process keeps its memory and its
    # descriptors from them in `/proc`.
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        sys.exit("cannot make the machine's first process undumpable")
    # Python turns this one into an exception; for PID 1 the kernel drops what has no handler.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.umask(0o022)
    requests = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 10)
    replies = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 10)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    Machine(requests, replies).serve()


if __name__ == "__main__":
    main()
