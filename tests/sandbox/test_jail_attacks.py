"""A hostile program in a real jail: each thing it tries, and the one way that may end."""

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from isolation import isolation, limits_mode

from subako_ray.sandbox.lease import Jailer
from subako_ray.sandbox.spec import (
    BindMount,
    FileMount,
    JailLimits,
    JailReport,
    JailSpec,
    TemporaryMount,
)

ATTACKS = Path(__file__).parent / "jail_attacks.py"

NO_FILE = {"ENOENT"}
READ_ONLY = {"EROFS", "EACCES"}
FORBIDDEN = {"EPERM"}
NO_FAMILY = {"EAFNOSUPPORT"}

FILES = {
    "read shadow": NO_FILE,
    "read shadow's copy": NO_FILE,
    "read a file of the host": NO_FILE,
    "read through a link": NO_FILE,
    "climb out": NO_FILE,
    "write the root": READ_ONLY,
    "write usr": READ_ONLY,
    "write usr bin": READ_ONLY,
    "write etc": READ_ONLY,
    "write passwd": READ_ONLY,
    "write the interpreter": READ_ONLY,
    "write beside the interpreter": READ_ONLY,
    "write the standard library": READ_ONLY,
    "write dev": READ_ONLY,
    "change null's mode": READ_ONLY | FORBIDDEN,
    "write its own program": READ_ONLY,
    "write a submount of a bound folder": READ_ONLY | NO_FILE,
    "open a device of a bound folder": {"EACCES"},
    "kcore": NO_FILE | {"EACCES"},
    "kmsg": NO_FILE | {"EACCES"} | FORBIDDEN,
    "dev kmsg": NO_FILE,
    "sysrq": NO_FILE | READ_ONLY,
    "core pattern": NO_FILE | READ_ONLY,
    "host name": NO_FILE | READ_ONLY,
    "uid map": NO_FILE | READ_ONLY,
    "own oom score": NO_FILE | READ_ONLY,
    "sys": NO_FILE,
    "dev mem": NO_FILE,
    "dev kvm": NO_FILE,
    "disk": NO_FILE,
    "dev tty": NO_FILE,
    "dev fuse": NO_FILE,
    "docker socket": NO_FILE,
    "dbus socket": NO_FILE,
    "host's run folder": NO_FILE,
    "character device in workspace": FORBIDDEN,
    "block device in tmp": FORBIDDEN,
    "link the interpreter": {"EXDEV"},
    "give a file to root": {"EINVAL", "EPERM"},
    "rename the workspace": {"EROFS", "EACCES", "EBUSY"},
    "nosuid /usr": {"True"},
    "nosuid /workspace": {"True"},
    "nosuid /tmp": {"True"},
    "nosuid /dev/shm": {"True"},
    "nodev /usr": {"True"},
    "nodev /workspace": {"True"},
    "nodev /tmp": {"True"},
    "nodev /dev/shm": {"True"},
    "nodev /bound": {"True"},
}

NETWORK = {
    "host's loopback": {"ECONNREFUSED", "ENETUNREACH"},
    "host's loopback, IPv6": {"ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL"},
    "metadata service": {"ENETUNREACH"},
    "an address outside": {"ENETUNREACH"},
    "an address outside, IPv6": {"ENETUNREACH", "EADDRNOTAVAIL"},
    "a datagram": {"ENETUNREACH"},
    "a name": {"unresolved"},
    "host's abstract socket": {"ECONNREFUSED"},
    "raw socket": FORBIDDEN,
    "socket alg, seqpacket": NO_FAMILY,
    "socketpair vsock": NO_FAMILY | FORBIDDEN | {"EOPNOTSUPP"},
} | {
    f"socket {family}{variant}": NO_FAMILY
    for family in ("netlink", "packet", "alg", "vsock", "bluetooth", "xdp")
    for variant in ("", ", high bits")
}

NO_CAPABILITY = {"0" * 16}
RIGHTS = {
    "CapInh": NO_CAPABILITY,
    "CapPrm": NO_CAPABILITY,
    "CapEff": NO_CAPABILITY,
    "CapBnd": NO_CAPABILITY,
    "CapAmb": NO_CAPABILITY,
    "NoNewPrivs": {"1"},
    "Seccomp": {"2"},
    "user id is 0": {"False"},
    "setuid": {"EINVAL", "EPERM"},
    "setgid": {"EINVAL", "EPERM"},
    "setgroups": {"EINVAL", "EPERM"},
    "setuid program": {"none gained", "there is none"},
    "raise an ambient capability": FORBIDDEN,
    "kill a process of the host": {"ESRCH"},
    "nicer": {"EACCES", "EPERM"},
    "real-time": FORBIDDEN,
    "core limit": {"(0, 0)"},
    "terminal": {"[]"},
    "is a session of its own": {"True"},
    "standard input": {"null or pipe"},
} | {
    f"raise {name}": {"ValueError", "EPERM"}
    for name in ("CORE", "NPROC", "NOFILE", "FSIZE", "MEMLOCK")
}

NAMESPACES = ("time", "mount", "cgroup", "uts", "ipc", "user", "pid", "net")
FORBIDDEN_CALLS = (
    *("ptrace attach", "ptrace seize", "ptrace traceme"),
    *("process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd"),
    *("keyctl", "add_key", "request_key"),
    *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup"),
    *("mount", "mount bind", "remount", "umount2", "pivot_root", "chroot", "fsopen"),
    *("fspick", "open_tree", "move_mount", "mount_setattr"),
    *("name_to_handle_at", "open_by_handle_at", "fanotify_init", "setns"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    *("reboot", "swapon", "swapoff", "syslog", "acct"),
    *("settimeofday", "clock_settime", "adjtimex", "iopl", "ioperm", "modify_ldt"),
    *("personality", "sethostname", "setdomainname", "quotactl", "vhangup"),
    *("memfd_secret", "vmsplice", "move_pages", "mbind"),
    *("TIOCSTI", "TIOCSTI, high bits", "TIOCLINUX"),
)
CALLS = (
    dict.fromkeys(FORBIDDEN_CALLS, FORBIDDEN)
    | {f"unshare {name}{bits}": FORBIDDEN for name in NAMESPACES for bits in ("", ", high bits")}
    | {
        f"clone {name}{bits}": FORBIDDEN
        for name in NAMESPACES
        # `clone` has no time namespace: that bit belongs to the signal in its flags.
        if name != "time"
        for bits in ("", ", high bits")
    }
    | {
        "clone3": {"ENOSYS"},
        "32-bit system call": {"SIGSYS"},
        "x32 system call": {"SIGSYS", "ENOSYS"},
        "shmget of a terabyte": {"EINVAL", "ENOMEM", "ENOSPC", "EPERM"},
    }
)
EXPECTED = {
    f"{part}: {name}": outcomes
    for part, table in (("file", FILES), ("network", NETWORK), ("rights", RIGHTS), ("call", CALLS))
    for name, outcomes in table.items()
}


def limits(wall_seconds: float = 30) -> JailLimits:
    return JailLimits(
        wall_seconds=wall_seconds,
        memory_bytes=128 << 20,
        processes=32,
        cpu_seconds=20,
        file_bytes=8 << 20,
        open_files=256,
        temporary_bytes=8 << 20,
        stderr_bytes=65_536,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    stdout: bytes
    report: JailReport


async def run_jail(spec: JailSpec) -> Ended:
    jailer = await Jailer.start(isolation())
    try:
        lease = await jailer.acquire(spec)
        try:
            async with asyncio.timeout(60):
                stdout = await lease.reader.read(-1)
                report = await lease.ended()
        finally:
            await lease.release()
    finally:
        await jailer.aclose()
    return Ended(stdout=stdout, report=report)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of one run of all attacks, with something of the host to be found by each."""
    canary = tmp_path_factory.mktemp("host") / "canary"
    canary.write_text("canary")
    abstract_name = f"subako-{secrets.token_hex(8)}"
    descriptor = os.open(canary, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    os.environ["SUBAKO_CANARY"] = "canary"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        abstract.bind("\0" + abstract_name)
        abstract.listen()
        spec = JailSpec(
            argv=(
                *("python3", "-I", "-S", "-E", "/attack/jail_attacks.py", str(canary)),
                *(str(server.getsockname()[1]), abstract_name, str(os.getpid())),
            ),
            cwd="/workspace",
            environment=(("GIVEN", "yes"),),
            mounts=(
                FileMount(target="/attack/jail_attacks.py", content=ATTACKS.read_bytes()),
                TemporaryMount(target="/workspace", size_bytes=4 << 20, inodes=256),
                # A folder with submounts and devices of its own, whatever the host.
                BindMount(source=Path("/dev"), target="/bound"),
            ),
            limits=limits(),
        )
        try:
            ended = asyncio.run(run_jail(spec))
        finally:
            del os.environ["SUBAKO_CANARY"]
            os.close(descriptor)
    assert ended.report.verdict == "exited", ended.report.stderr.decode()
    assert ended.report.exit_code == 0, ended.report.stderr.decode()
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def test_every_attack_has_its_expected_outcome(attacked: dict[str, Any]) -> None:
    assert set(attacked["outcomes"]) - {"rights: Groups"} == set(EXPECTED)


@pytest.mark.parametrize("attack", EXPECTED)
def test_an_attack_fails(attacked: dict[str, Any], attack: str) -> None:
    assert attacked["outcomes"][attack] in EXPECTED[attack]


def test_a_jail_sees_nothing_of_the_host(attacked: dict[str, Any]) -> None:
    seen = attacked["surroundings"]
    base = {"bin", "dev", "etc", "lib", "lib64", "opt", "proc", "sbin", "tmp", "usr"}
    assert set(seen["root"]) <= base | {"attack", "bound", "workspace"}
    assert set(seen["dev"]) <= {
        *("null", "zero", "full", "random", "urandom"),
        *("fd", "stdin", "stdout", "stderr", "shm"),
    }
    assert seen["homes"] == []
    assert seen["processes"] == 1
    assert seen["descriptors"] == []
    assert "canary" not in json.dumps(seen)


def test_a_jails_environment_is_only_what_it_was_given(attacked: dict[str, Any]) -> None:
    seen = attacked["surroundings"]
    assert "GIVEN" in seen["environment"]
    assert "SUBAKO_CANARY" not in seen["environment"]
    assert set(seen["environment"]) == set(seen["first environment"])
    assert set(seen["environment"]) <= {
        *("GIVEN", "PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH"),
        *("PYTHONDONTWRITEBYTECODE", "OPENBLAS_NUM_THREADS"),
    }


def test_a_jail_can_write_nothing_but_its_own_memory(attacked: dict[str, Any]) -> None:
    assert set(attacked["surroundings"]["writable mounts"]) <= {"/workspace", "/tmp", "/dev/shm"}


async def test_a_program_that_stops_itself_meets_the_wall_limit() -> None:
    program = (
        "import os, signal\n"
        "for pid in (os.getpid(), 1, 0, -1):\n"
        "    try: os.kill(pid, signal.SIGSTOP)\n"
        "    except OSError: pass\n"
        "if not os.fork(): os.kill(os.getpid(), signal.SIGSTOP)\n"
        "while True: signal.pause()\n"
    )
    spec = JailSpec(argv=("python3", "-I", "-S", "-c", program), cwd="/tmp", limits=limits(1))
    report = (await run_jail(spec)).report
    assert report.verdict == "timed_out"
    assert 0.9 < report.wall_seconds < 10
    assert report.leaked_processes == 0


@pytest.mark.parametrize("code", [137, 255, 159, 0])
async def test_an_exit_code_cannot_pass_for_another_verdict(code: int) -> None:
    program = (
        "import os, sys\n"
        "os.write(2, b'[F][2026-01-01T00:00:00+0000] Couldn\\'t launch the child process\\n')\n"
        f"os._exit({code})\n"
    )
    spec = JailSpec(argv=("python3", "-I", "-S", "-c", program), cwd="/tmp", limits=limits())
    report = (await run_jail(spec)).report
    assert (report.verdict, report.exit_code) == ("exited", code)


def arguments_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def processes_with(argument: str) -> list[int]:
    pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if argument.encode() in arguments_of(pid)]


def children_of(parent: int) -> list[int]:
    """The processes of the whole host that this one is the parent of."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue
        if int(text.rsplit(")", 1)[1].split()[1]) == parent:
            found.append(int(folder.name))
    return found


HARD_TO_KILL = """
import os, signal
for number in range(1, 32):
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: pass
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
print("up", flush=True)
while True: signal.pause()
"""


def hard_to_kill(mark: str) -> JailSpec:
    """A first process and a daemon, which both say `up` and ignore what they can."""
    return JailSpec(
        argv=("python3", "-I", "-S", "-c", HARD_TO_KILL, mark), cwd="/tmp", limits=limits()
    )


async def nothing_left(mark: str) -> None:
    async with asyncio.timeout(10):
        while processes_with(mark):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("victim", ["the jailer", "its guardian"])
async def test_a_jail_dies_with_its_supervisor(victim: str) -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    jailer = await Jailer.start(isolation())
    try:
        guardian = jailer.process_id
        assert guardian is not None
        (supervisor,) = children_of(guardian)
        lease = await jailer.acquire(hard_to_kill(mark))
        assert await lease.reader.readexactly(6) == b"up\nup\n"
        assert len(processes_with(mark)) == 2
        os.kill(supervisor if victim == "the jailer" else guardian, signal.SIGKILL)
        report = await lease.ended()
        await nothing_left(mark)
        assert report.verdict == "supervisor_lost"
        assert await lease.release() == report
        again = await jailer.acquire(hard_to_kill(mark))
        assert await again.reader.readexactly(6) == b"up\nup\n"
        assert (await again.release()).verdict == "killed"
    finally:
        await jailer.aclose()
    assert processes_with(mark) == []


WORKER = """
import asyncio, sys
from subako_ray.sandbox.lease import Jailer
from subako_ray.sandbox.spec import IsolationSettings, JailLimits, JailSpec

async def main():
    jailer = await Jailer.start(IsolationSettings(limits=sys.argv[3]))
    limits = JailLimits(
        wall_seconds=None, memory_bytes=1 << 26, processes=8, cpu_seconds=None,
        file_bytes=1 << 20, open_files=64, temporary_bytes=1 << 20, stderr_bytes=1024,
    )
    argv = ("python3", "-I", "-S", "-c", sys.argv[1], sys.argv[2])
    lease = await jailer.acquire(JailSpec(argv=argv, cwd="/tmp", limits=limits))
    await lease.reader.readexactly(6)
    print("leased", flush=True)
    await lease.ended()

asyncio.run(main())
"""


async def test_a_jail_dies_with_its_worker() -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORKER, HARD_TO_KILL, mark, limits_mode()),
        stdout=asyncio.subprocess.PIPE,
    )
    assert worker.stdout is not None
    try:
        async with asyncio.timeout(30):
            assert await worker.stdout.readline() == b"leased\n"
        # Its own two, and the worker that was given the mark too.
        assert len(processes_with(mark)) == 3
        helpers = children_of(worker.pid)
        assert len(helpers) == 1
    finally:
        worker.kill()
        await worker.wait()
    await nothing_left(mark)
    async with asyncio.timeout(10):
        while any(b"subako_ray.sandbox.jailer" in b" ".join(arguments_of(p)) for p in helpers):
            await asyncio.sleep(0.01)
