"""The configuration of nsjail for one jail: a pure function of its specification and the host.

Written in the JSON form of nsjail's `config.proto`. Everything that nsjail has a default for and
that matters is said here. Units are nsjail's: MiB for address space, files and stacks, KiB for
locked memory.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, assert_never

from subako_ray.sandbox.spec import (
    INTERPRETER_TARGET,
    BindMount,
    FileMount,
    JailSpec,
    Mount,
    TemporaryMount,
)
from subako_ray.sandbox.stage import StagedSource

INSIDE_ID: Final = 1000
POLICY: Final = Path(__file__).with_name("policy.kafel").read_text(encoding="utf-8")

MEBIBYTE: Final = 1 << 20
BACKSTOP_SECONDS: Final = 5
"""How much later than the jailer nsjail ends a jail; it comes to it only if the jailer hangs."""

UINT32_MAX: Final = (1 << 32) - 1

TEMPORARY_INODES: Final = 16_384
SHARED_MEMORY_BYTES: Final = 16 * MEBIBYTE
STACK_MIB: Final = 8
LOCKED_MEMORY_KIB: Final = 64

DEVICES: Final = ("null", "zero", "full", "random", "urandom")
DEVICE_LINKS: Final = (
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
)
FILES: Final = (
    ("/etc/passwd", f"subako:x:{INSIDE_ID}:{INSIDE_ID}:subako:/tmp:/bin/sh\n"),
    ("/etc/group", f"subako:x:{INSIDE_ID}:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMount:
    """A part of the base system and the staged source it is shown from."""

    target: str
    source: StagedSource
    executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What the configuration needs to know of the host.

    Attributes:
        outside_uid: the host's user that every jail is; never 0.
        outside_gid: its group; never 0.
        process_list: whether a jail can have a `/proc` of its own.
        whole_memory: whether a cgroup limits the memory of the jail as a whole.
        interpreter: path of the jail's Python, in the jail.
        system: what is shown of the host.
        links: the base system's links, as (text of the link, its path).
    """

    outside_uid: int
    outside_gid: int
    process_list: bool
    whole_memory: bool
    interpreter: str
    system: tuple[SystemMount, ...]
    links: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        if self.outside_uid == 0 or self.outside_gid == 0:
            raise ValueError("a jail must not be the host's root")


def nsjail_config(
    spec: JailSpec, facts: HostFacts, sources: Mapping[Path, StagedSource]
) -> dict[str, object]:
    """Returns nsjail's configuration of a jail.

    Args:
        spec: the jail.
        facts: the host.
        sources: the staged source of every bind mount of `spec`.
    """
    path, *arguments = _program(spec.argv, facts)
    return {
        "name": "subako",
        "mode": "ONCE",
        "log_level": "INFO",
        "hostname": spec.hostname,
        "cwd": spec.cwd,
        "exec_bin": {"path": path, "arg": arguments},
        "keep_env": False,
        "envar": [f"{name}={value}" for name, value in _environment(spec, facts).items()],
        "keep_caps": False,
        "disable_no_new_privs": False,
        "skip_setsid": False,
        "nice_level": 0,
        "clone_newuser": True,
        "clone_newns": True,
        "clone_newpid": True,
        "clone_newnet": True,
        "clone_newipc": True,
        "clone_newuts": True,
        "clone_newcgroup": True,
        "uidmap": [_identity(facts.outside_uid)],
        "gidmap": [_identity(facts.outside_gid)],
        "seccomp_string": [POLICY],
        **_limits(spec, facts),
        "mount_proc": facts.process_list,
        "mount": [*_base_mounts(spec, facts), *_extra_mounts(spec, sources)],
    }


def _program(argv: tuple[str, ...], facts: HostFacts) -> tuple[str, ...]:
    name, *arguments = argv
    if name == "python3":
        return (facts.interpreter, *arguments)
    if "/" in name:
        return argv
    # nsjail searches no PATH.
    return ("/usr/bin/env", "--", *argv)


def _environment(spec: JailSpec, facts: HostFacts) -> dict[str, str]:
    base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108
    if facts.interpreter.startswith(INTERPRETER_TARGET + "/"):
        base["PATH"] = f"{INTERPRETER_TARGET}/bin:{base['PATH']}"
        # Its library is looked for where it was built for, which is not there.
        base["LD_LIBRARY_PATH"] = f"{INTERPRETER_TARGET}/lib"
    return {**base, **dict(spec.environment)}


def _identity(outside: int) -> dict[str, object]:
    return {"inside_id": str(INSIDE_ID), "outside_id": str(outside), "count": 1}


def _limits(spec: JailSpec, facts: HostFacts) -> dict[str, object]:
    limits = spec.limits
    wall = limits.wall_seconds
    # Address space is no measure of memory: compilers at run time reserve far more than they use.
    # It is limited only where nothing better limits memory.
    space: dict[str, object] = (
        {"rlimit_as_type": "HARD"}
        if facts.whole_memory
        else {"rlimit_as_type": "VALUE", "rlimit_as": _mebibytes(limits.memory_bytes)}
    )
    processor: dict[str, object] = (
        {"rlimit_cpu_type": "HARD"}
        if limits.cpu_seconds is None
        else {"rlimit_cpu_type": "VALUE", "rlimit_cpu": limits.cpu_seconds}
    )
    return {
        "time_limit": 0 if wall is None else min(math.ceil(wall) + BACKSTOP_SECONDS, UINT32_MAX),
        **space,
        **processor,
        "rlimit_core_type": "VALUE",
        "rlimit_core": 0,
        "rlimit_fsize_type": "VALUE",
        "rlimit_fsize": _mebibytes(limits.file_bytes),
        "rlimit_nofile_type": "VALUE",
        "rlimit_nofile": limits.open_files,
        "rlimit_nproc_type": "VALUE",
        "rlimit_nproc": limits.processes,
        "rlimit_stack_type": "VALUE",
        "rlimit_stack": STACK_MIB,
        "rlimit_memlock_type": "VALUE",
        "rlimit_memlock": LOCKED_MEMORY_KIB,
        "rlimit_rtprio_type": "VALUE",
        "rlimit_rtprio": 0,
        "rlimit_msgqueue_type": "VALUE",
        "rlimit_msgqueue": 0,
    }


def _mebibytes(size_bytes: int) -> int:
    return -(-size_bytes // MEBIBYTE)


def _base_mounts(spec: JailSpec, facts: HostFacts) -> list[dict[str, object]]:
    system = [
        _bind(mount.source, mount.target, executable=mount.executable) for mount in facts.system
    ]
    devices: list[dict[str, object]] = [
        {
            "src": f"/dev/{name}",
            "dst": f"/dev/{name}",
            "is_bind": True,
            "is_dir": False,
            "nosuid": True,
            "noexec": True,
        }
        for name in DEVICES
    ]
    links: list[dict[str, object]] = [
        {"src": text, "dst": path, "is_symlink": True}
        for text, path in (*facts.links, *DEVICE_LINKS)
    ]
    memory = [
        _temporary("/tmp", spec.limits.temporary_bytes, TEMPORARY_INODES),  # noqa: S108
        _temporary("/dev/shm", SHARED_MEMORY_BYTES, TEMPORARY_INODES),  # noqa: S108
    ]
    files = [_file(path, text.encode()) for path, text in FILES]
    return [*system, *links, *devices, *memory, *files]


def _extra_mounts(spec: JailSpec, sources: Mapping[Path, StagedSource]) -> list[dict[str, object]]:
    # An outer mount would hide the inner one if it came later.
    mounts = sorted(spec.mounts, key=lambda mount: (mount.target.count("/"), mount.target))
    return [_mount(mount, sources) for mount in mounts]


def _mount(mount: Mount, sources: Mapping[Path, StagedSource]) -> dict[str, object]:
    match mount:
        case BindMount():
            return _bind(sources[mount.source], mount.target, executable=True)
        case TemporaryMount():
            return _temporary(mount.target, mount.size_bytes, mount.inodes)
        case FileMount():
            return _file(mount.target, mount.content)
        case _:
            assert_never(mount)


def _bind(source: StagedSource, target: str, *, executable: bool) -> dict[str, object]:
    return {
        "src": source.path,
        "dst": target,
        "is_bind": True,
        "is_dir": source.is_folder,
        "nosuid": True,
        "nodev": True,
        "noexec": not executable,
    }


def _temporary(target: str, size_bytes: int, inodes: int) -> dict[str, object]:
    return {
        "dst": target,
        "fstype": "tmpfs",
        "rw": True,
        "is_dir": True,
        "nosuid": True,
        "nodev": True,
        "options": f"size={size_bytes},nr_inodes={inodes},mode=1777",
    }


def _file(target: str, content: bytes) -> dict[str, object]:
    return {
        "dst": target,
        "src_content": base64.b64encode(content).decode("ascii"),
        "nosuid": True,
        "nodev": True,
        "noexec": True,
    }
