"""What a hostile program tries in a jail: run in one, it prints each attempt's outcome as JSON.

An outcome is the name of the error number, `done` where the attempt went through, or what was
seen. Never to be run anywhere else: most of it works on an unprotected host.
"""

# System calls are what this file is about, and `pathlib` hides which.
# ruff: noqa: PTH101, PTH104, PTH110, PTH120, PTH208, PTH211

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import resource
import select
import signal
import socket
import stat
import struct
import sys
import threading
from collections.abc import Callable

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

NAMESPACES = {
    "time": 0x80,
    "mount": 0x20000,
    "cgroup": 0x2000000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
# linux/arch/x86/entry/syscalls/syscall_64.tbl
X86_64 = {
    "io_uring_setup": 425,
    "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "pidfd_open": 434,
    "pidfd_getfd": 438,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "bpf": 321,
    "perf_event_open": 298,
    "userfaultfd": 323,
    "mount": 165,
    "umount2": 166,
    "pivot_root": 155,
    "chroot": 161,
    "fsopen": 430,
    "fsmount": 432,
    "fspick": 433,
    "move_mount": 429,
    "open_tree": 428,
    "mount_setattr": 442,
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "fanotify_init": 300,
    "unshare": 272,
    "clone": 56,
    "clone3": 435,
    "setns": 308,
    "kexec_load": 246,
    "kexec_file_load": 320,
    "init_module": 175,
    "finit_module": 313,
    "delete_module": 176,
    "reboot": 169,
    "swapon": 167,
    "swapoff": 168,
    "syslog": 103,
    "acct": 163,
    "settimeofday": 164,
    "clock_settime": 227,
    "adjtimex": 159,
    "iopl": 172,
    "ioperm": 173,
    "modify_ldt": 154,
    "personality": 135,
    "sethostname": 170,
    "setdomainname": 171,
    "quotactl": 179,
    "vhangup": 153,
    "memfd_secret": 447,
    "vmsplice": 278,
    "move_pages": 279,
    "mbind": 237,
    "shmget": 29,
}
PR_CAP_AMBIENT = 47


def name_of(number: int | None) -> str:
    return errno.errorcode.get(number or 0, f"errno {number}")


def call(name: str, *arguments: object) -> str:
    """Makes a raw system call."""
    ctypes.set_errno(0)
    values = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    result = libc.syscall(ctypes.c_long(X86_64[name]), *values)
    if result == 0 and name == "clone":
        # This is the child, if there should ever be one.
        os._exit(0)
    return "done" if result >= 0 else name_of(ctypes.get_errno())


def attempt(action: Callable[[], object]) -> str:
    """Does something with files or sockets."""
    try:
        result = action()
    except socket.gaierror:
        return "unresolved"
    except OSError as error:
        return name_of(error.errno) if error.errno else type(error).__name__
    except ValueError as error:
        return type(error).__name__
    return "done" if result is None else f"done: {result!r}"[:200]


def in_child(action: Callable[[], str]) -> str:
    """Tries something that may end the process that tries it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, action().encode())
        os._exit(0)
    os.close(writer)
    said = b""
    if select.select([reader], [], [], 5)[0]:
        said = os.read(reader, 4096)
    os.kill(child, signal.SIGKILL)
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    if said:
        return said.decode()
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "silent"


def read(path: str) -> Callable[[], object]:
    def action() -> object:
        with open(path, "rb") as file:
            return file.read(40)

    return action


def write(path: str, data: bytes = b"x") -> Callable[[], object]:
    def action() -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    return action


def write_existing(path: str, data: bytes = b"x") -> Callable[[], object]:
    def action() -> None:
        with open(path, "r+b", buffering=0) as file:
            file.write(data)

    return action


def new_socket(family: int, kind: int, protocol: int = 0) -> str:
    ctypes.set_errno(0)
    descriptor = libc.syscall(
        ctypes.c_long(41), ctypes.c_long(family), ctypes.c_long(kind), ctypes.c_long(protocol)
    )
    if descriptor < 0:
        return name_of(ctypes.get_errno())
    os.close(descriptor)
    return "done"


def connect(family: int, address: object, kind: int = socket.SOCK_STREAM) -> Callable[[], object]:
    def action() -> None:
        with socket.socket(family, kind) as client:
            client.settimeout(3)
            client.connect(address)  # type: ignore[arg-type]
            if kind == socket.SOCK_DGRAM:
                client.send(b"x")

    return action


def run_code(code: bytes) -> Callable[[], str]:
    """Runs machine code that returns a number."""

    def action() -> str:
        memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        return "done" if result >= 0 else name_of(-result)

    return action


def system_calls() -> dict[str, str]:
    buffer = ctypes.create_string_buffer(4096)
    own, parent = os.getpid(), os.fork()
    if parent == 0:
        signal.pause()
    victim = parent
    # struct clone_args with nothing but an exit signal.
    clone_arguments = ctypes.create_string_buffer(struct.pack("8Q", 0, 0, 0, 0, 17, 0, 0, 0))
    found = {
        "ptrace attach": call("ptrace", 16, victim, 0, 0),
        "ptrace seize": call("ptrace", 0x4206, victim, 0, 0),
        "ptrace traceme": in_child(lambda: call("ptrace", 0, 0, 0, 0)),
        "process_vm_readv": call("process_vm_readv", victim, buffer, 1, buffer, 1, 0),
        "process_vm_writev": call("process_vm_writev", victim, buffer, 1, buffer, 1, 0),
        "kcmp": call("kcmp", own, victim, 0, 0, 0),
        "pidfd_getfd": call("pidfd_getfd", os.pidfd_open(victim), 0, 0),
        "keyctl": call("keyctl", 0, -3, 1),
        "add_key": call("add_key", b"user", b"x", b"x", 1, -3),
        "request_key": call("request_key", b"user", b"x", None, -3),
        "bpf": call("bpf", 0, buffer, 64),
        "perf_event_open": call("perf_event_open", buffer, 0, -1, -1, 0),
        "userfaultfd": call("userfaultfd", 1),
        "io_uring_setup": call("io_uring_setup", 1, buffer),
        "mount": call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        "mount bind": call("mount", b"/", b"/tmp", None, 4096, None),
        "remount": call("mount", None, b"/usr", None, 32 | 4096, None),
        "umount2": call("umount2", b"/tmp", 2),
        "pivot_root": call("pivot_root", b"/tmp", b"/tmp"),
        "chroot": call("chroot", b"/tmp"),
        "fsopen": call("fsopen", b"tmpfs", 0),
        "fspick": call("fspick", -100, b"/tmp", 0),
        "open_tree": call("open_tree", -100, b"/", 1),
        "move_mount": call("move_mount", -100, b"/tmp", -100, b"/tmp", 0),
        "mount_setattr": call("mount_setattr", -100, b"/usr", 0, buffer, 32),
        "name_to_handle_at": call("name_to_handle_at", -100, b"/", buffer, buffer, 0),
        "open_by_handle_at": call("open_by_handle_at", -100, buffer, 0),
        "fanotify_init": call("fanotify_init", 0, 0),
        "setns": call("setns", os.pidfd_open(victim), NAMESPACES["user"]),
        "clone3": call("clone3", clone_arguments, 64),
        "kexec_load": call("kexec_load", 0, 0, None, 0),
        "kexec_file_load": call("kexec_file_load", -1, -1, 0, None, 0),
        "init_module": call("init_module", buffer, 64, b""),
        "finit_module": call("finit_module", 0, b"", 0),
        "delete_module": call("delete_module", b"x", 0),
        "reboot": call("reboot", 0xFEE1DEAD, 672274793, 0, None),
        "swapon": call("swapon", b"/tmp", 0),
        "swapoff": call("swapoff", b"/tmp"),
        "syslog": call("syslog", 3, buffer, 4096),
        "acct": call("acct", None),
        "settimeofday": call("settimeofday", buffer, None),
        "clock_settime": call("clock_settime", 0, buffer),
        "adjtimex": call("adjtimex", buffer),
        "iopl": call("iopl", 3),
        "ioperm": call("ioperm", 0, 1, 1),
        "modify_ldt": call("modify_ldt", 0, buffer, 64),
        "personality": call("personality", 0x0040000),
        "sethostname": call("sethostname", b"x", 1),
        "setdomainname": call("setdomainname", b"x", 1),
        "quotactl": call("quotactl", 0x80000100, None, 0, None),
        "vhangup": call("vhangup"),
        "memfd_secret": call("memfd_secret", 0),
        "vmsplice": call("vmsplice", 1, buffer, 0, 0),
        "move_pages": call("move_pages", 0, 0, None, None, None, 0),
        "mbind": call("mbind", 0, 0, 0, None, 0, 0),
        "shmget of a terabyte": call("shmget", 0, 1 << 40, 0o1600),
        "TIOCSTI": attempt(lambda: fcntl.ioctl(0, 0x5412, b"x")),
        "TIOCLINUX": attempt(lambda: fcntl.ioctl(0, 0x541C, b"\2")),
        # int 0x80 with getpid of the 32-bit table; then x32's own getpid.
        "32-bit system call": in_child(run_code(b"\xb8\x14\0\0\0\xcd\x80\xc3")),
        "x32 system call": in_child(run_code(b"\xb8\x27\0\0\x40\x0f\x05\xc3")),
    }
    high_bits = 1 << 40
    for name, flag in NAMESPACES.items():
        found[f"unshare {name}"] = call("unshare", flag)
        found[f"unshare {name}, high bits"] = call("unshare", flag | high_bits)
        if name != "time":
            found[f"clone {name}"] = call("clone", flag | signal.SIGCHLD, 0, 0, 0, 0)
            found[f"clone {name}, high bits"] = call("clone", flag | high_bits | 17, 0, 0, 0, 0)
    found["TIOCSTI, high bits"] = _raw_ioctl(0x5412 | 1 << 32)
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    return found


def _raw_ioctl(request: int) -> str:
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(16), ctypes.c_long(0), ctypes.c_long(request), b"x")
    return "done" if result >= 0 else name_of(ctypes.get_errno())


def files(canary: str, interpreter: str) -> dict[str, str]:
    workspace_file = "/workspace/own"
    write(workspace_file)()
    os.symlink("/etc/shadow", "/workspace/link")
    found = {
        "read shadow": attempt(read("/etc/shadow")),
        "read shadow's copy": attempt(read("/etc/shadow-")),
        "read a file of the host": attempt(read(canary)),
        "read through a link": attempt(read("/workspace/link")),
        "climb out": attempt(read("/workspace" + "/.." * 20 + canary)),
        "write the root": attempt(write("/x")),
        "write usr": attempt(write("/usr/x")),
        "write usr bin": attempt(write("/bin/x")),
        "write etc": attempt(write("/etc/x")),
        "write passwd": attempt(write_existing("/etc/passwd")),
        "write the interpreter": attempt(write_existing(interpreter)),
        "write beside the interpreter": attempt(write(os.path.dirname(interpreter) + "/x")),
        "write the standard library": attempt(write(os.path.dirname(os.__file__) + "/x")),
        "write dev": attempt(write("/dev/x")),
        "change null's mode": attempt(lambda: os.chmod("/dev/null", 0o600)),
        "write its own program": attempt(write_existing(__file__)),
        "write a submount of a bound folder": attempt(write("/bound/shm/x")),
        "open a device of a bound folder": attempt(read("/bound/zero")),
        "kcore": attempt(read("/proc/kcore")),
        "kmsg": attempt(read("/proc/kmsg")),
        "dev kmsg": attempt(read("/dev/kmsg")),
        "sysrq": attempt(write_existing("/proc/sysrq-trigger", b"h")),
        "core pattern": attempt(write_existing("/proc/sys/kernel/core_pattern")),
        "host name": attempt(write_existing("/proc/sys/kernel/hostname")),
        "uid map": attempt(write_existing("/proc/self/uid_map", b"0 0 1")),
        "own oom score": attempt(write_existing("/proc/self/oom_score_adj", b"-1000")),
        "sys": attempt(lambda: os.listdir("/sys")),
        "dev mem": attempt(read("/dev/mem")),
        "dev kvm": attempt(read("/dev/kvm")),
        "disk": attempt(read("/dev/vda")),
        "dev tty": attempt(read("/dev/tty")),
        "dev fuse": attempt(read("/dev/fuse")),
        "docker socket": attempt(connect(socket.AF_UNIX, "/var/run/docker.sock")),
        "dbus socket": attempt(connect(socket.AF_UNIX, "/run/dbus/system_bus_socket")),
        "host's run folder": attempt(lambda: os.listdir("/run")),
        "character device in workspace": attempt(
            lambda: os.mknod("/workspace/c", stat.S_IFCHR | 0o666, os.makedev(1, 1))
        ),
        "block device in tmp": attempt(
            lambda: os.mknod("/tmp/b", stat.S_IFBLK | 0o666, os.makedev(7, 0))
        ),
        "link the interpreter": attempt(lambda: os.link(interpreter, "/workspace/python")),
        "give a file to root": attempt(lambda: os.chown(workspace_file, 0, 0)),
        "rename the workspace": attempt(lambda: os.rename("/workspace", "/elsewhere")),
    }
    os.chmod(workspace_file, 0o6755)
    for target in ("/usr", "/workspace", "/tmp", "/dev/shm"):
        found[f"nosuid {target}"] = str(bool(os.statvfs(target).f_flag & os.ST_NOSUID))
    for target in ("/usr", "/workspace", "/tmp", "/dev/shm", "/bound"):
        found[f"nodev {target}"] = str(bool(os.statvfs(target).f_flag & os.ST_NODEV))
    return found


def network(port: int, abstract_name: str) -> dict[str, str]:
    found = {
        "host's loopback": attempt(connect(socket.AF_INET, ("127.0.0.1", port))),
        "host's loopback, IPv6": attempt(connect(socket.AF_INET6, ("::1", port))),
        "metadata service": attempt(connect(socket.AF_INET, ("169.254.169.254", 80))),
        "an address outside": attempt(connect(socket.AF_INET, ("198.51.100.1", 443))),
        "an address outside, IPv6": attempt(connect(socket.AF_INET6, ("2001:db8::1", 443))),
        "a datagram": attempt(connect(socket.AF_INET, ("192.0.2.1", 53), socket.SOCK_DGRAM)),
        "a name": attempt(lambda: socket.getaddrinfo("example.com", 80)),
        "host's abstract socket": attempt(connect(socket.AF_UNIX, "\0" + abstract_name)),
    }
    families = {"netlink": 16, "packet": 17, "alg": 38, "vsock": 40, "bluetooth": 31, "xdp": 44}
    for name, family in families.items():
        found[f"socket {name}"] = new_socket(family, 3 if name in ("netlink", "packet") else 1)
        found[f"socket {name}, high bits"] = new_socket(family | 1 << 32, 3)
    found["socket alg, seqpacket"] = new_socket(38, 5)
    found["raw socket"] = new_socket(2, 3, 1)
    found["socketpair vsock"] = attempt(lambda: socket.socketpair(socket.AddressFamily(40)))
    return found


def rights(host_pid: int) -> dict[str, str]:
    status = {}
    with open("/proc/self/status") as file:
        for line in file:
            key, _, value = line.partition(":")
            status[key] = value.strip()
    names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Groups")
    found = {name: status.get(name, "missing") for name in names}
    found |= {
        "user id is 0": str(0 in os.getresuid() + os.getresgid()),
        "setuid": attempt(lambda: os.setuid(0)),
        "setgid": attempt(lambda: os.setgid(0)),
        "setgroups": attempt(lambda: os.setgroups([0])),
        "raise an ambient capability": name_of_prctl(PR_CAP_AMBIENT, 2, 21),
        "kill a process of the host": attempt(lambda: os.kill(host_pid, 0)),
        "nicer": attempt(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5)),
        "real-time": attempt(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))),
        "core limit": str(resource.getrlimit(resource.RLIMIT_CORE)),
        "terminal": str([number for number in range(3) if os.isatty(number)]),
        "is a session of its own": str(os.getsid(0) == os.getpid()),
        "standard input": "null or pipe"
        if stat.S_ISFIFO(os.fstat(0).st_mode) or os.fstat(0).st_rdev == os.makedev(1, 3)
        else "something else",
    }
    for name in ("CORE", "NPROC", "NOFILE", "FSIZE", "MEMLOCK"):
        limit = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(limit)[1]
        if hard == resource.RLIM_INFINITY:
            found[f"raise {name}"] = "there is no limit"
        else:
            found[f"raise {name}"] = attempt(
                lambda limit=limit, hard=hard: resource.setrlimit(limit, (hard, hard + 1))  # type: ignore[misc]
            )
    return found


def name_of_prctl(*arguments: int) -> str:
    ctypes.set_errno(0)
    result = libc.prctl(*(ctypes.c_long(item) for item in arguments), 0, 0)
    return "done" if result >= 0 else name_of(ctypes.get_errno())


def setuid_program() -> str:
    """Whether a setuid program gets another effective user id, read while it waits for input."""
    if not os.path.exists("/usr/bin/su"):
        return "there is none"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(reader, 0)
        os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        os.execv("/usr/bin/su", ["su", "-c", "cat /etc/shadow > /workspace/loot"])
    seen = set()
    for _ in range(2000):
        with open(f"/proc/{child}/status") as file:
            lines = dict(line.split(":", 1) for line in file)
        if "Uid" in lines:
            seen |= set(lines["Uid"].split())
        if os.waitpid(child, os.WNOHANG)[0]:
            break
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(writer)
    os.close(reader)
    return f"user ids {sorted(seen)}" if seen != {str(os.getuid())} else "none gained"


def surroundings() -> dict[str, object]:
    processes = [name for name in os.listdir("/proc") if name.isdigit()]
    with open("/proc/1/environ", "rb") as file:
        first_environment = file.read().decode()
    with open("/proc/self/mounts") as file:
        mounts = [line.split()[1:4] for line in file]
    return {
        "root": sorted(os.listdir("/")),
        "dev": sorted(os.listdir("/dev")),
        "etc": sorted(os.listdir("/etc")),
        "homes": [path for path in ("/root", "/home", "/var", "/mnt") if os.path.exists(path)],
        "processes": len(processes),
        "environment": sorted(os.environ),
        "first environment": sorted(
            item.partition("=")[0] for item in first_environment.split("\0") if item
        ),
        "descriptors": sorted(
            number for number in range(4096) if number > 2 and is_descriptor(number)
        ),
        "writable mounts": sorted(mount[0] for mount in mounts if "rw" in mount[2].split(",")),
        "threads": threading.active_count(),
        "machine": platform.machine(),
        "hostname": socket.gethostname(),
    }


def is_descriptor(number: int) -> bool:
    try:
        fcntl.fcntl(number, fcntl.F_GETFD)
    except OSError:
        return False
    return True


def main() -> None:
    if os.getpid() != 1 or os.getuid() == 0:
        sys.exit("this program attacks its host: it runs in a jail or nowhere")
    canary, port, abstract_name, host_pid = sys.argv[1:]
    report: dict[str, object] = {"surroundings": surroundings()}
    outcomes: dict[str, str] = {}
    outcomes |= {f"file: {key}": value for key, value in files(canary, sys.executable).items()}
    outcomes |= {
        f"network: {key}": value for key, value in network(int(port), abstract_name).items()
    }
    outcomes |= {f"rights: {key}": value for key, value in rights(int(host_pid)).items()}
    outcomes["rights: setuid program"] = setuid_program()
    outcomes |= {f"call: {key}": value for key, value in system_calls().items()}
    print(json.dumps(report | {"outcomes": outcomes}), flush=True)


if __name__ == "__main__":
    main()
