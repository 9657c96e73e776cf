"""How a jail ended, read from evidence that the jail cannot write.

nsjail's exit code says little: a program may exit with 137 or 255 as well. Its log and what the
jailer did itself say the rest; the log's descriptor is closed in the jail.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from subako_ray.sandbox.spec import Verdict

EXITED: Final = re.compile(
    rb"^\[I\]\[[^\]]*\] pid=\d+ \(.*\) exited with status: (\d+), ", re.MULTILINE
)
SIGNALLED: Final = re.compile(
    rb"^\[I\]\[[^\]]*\] pid=\d+ \(.*\) terminated with signal: (\w+)", re.MULTILINE
)
NOT_ALLOWED: Final = re.compile(
    rb"^\[[A-Z]\]\[[^\]]*\].* committed a syscall/seccomp violation", re.MULTILINE
)
NEVER_RAN: Final = re.compile(
    rb"^\[F\]\[|^\[[EW]\]\[.*Couldn't launch the child process", re.MULTILINE
)
BACKSTOP: Final = re.compile(rb"^\[[IWE]\]\[[^\]]*\].* run time >= time limit ", re.MULTILINE)
COMPLAINT: Final = re.compile(rb"^\[[FEW]\]\[[^\]]*\](?:\[\d+\] \w+\(\):\d+)? *(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a jail that has ended.

    Attributes:
        stopped: why the jailer ended it, if it did.
        log: nsjail's log.
        memory_kills: processes that the kernel killed for the jail's memory limit.
    """

    stopped: Literal["timed_out", "killed"] | None
    log: bytes
    memory_kills: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict and its particulars; see `JailReport`."""

    verdict: Verdict
    exit_code: int | None = None
    signal: str | None = None
    detail: str = ""


def judge(evidence: Evidence) -> Judgement:
    """Decides; the order is what makes it right."""
    log = evidence.log
    if evidence.stopped is not None:
        return Judgement(verdict=evidence.stopped)
    if NEVER_RAN.search(log):
        # nsjail logs how the process that failed to start ended, too.
        return Judgement(verdict="jail_failed", detail=complaint(log))
    if BACKSTOP.search(log):
        return Judgement(verdict="timed_out")
    ended = SIGNALLED.search(log)
    signal = "SIGSYS" if NOT_ALLOWED.search(log) else ended[1].decode() if ended else None
    exited = EXITED.search(log)
    if evidence.memory_kills and (signal == "SIGKILL" or (signal is None and exited is None)):
        return Judgement(verdict="out_of_memory", signal="SIGKILL")
    if signal is not None:
        return Judgement(verdict="signalled", signal=signal)
    if exited:
        return Judgement(verdict="exited", exit_code=int(exited[1]))
    return Judgement(verdict="supervisor_lost", detail=complaint(log))


def complaint(log: bytes) -> str:
    """Returns the first thing nsjail complained about, in one printable line."""
    found = COMPLAINT.search(log)
    text = found[1].decode(errors="replace") if found else ""
    return "".join(c if c.isprintable() else "?" for c in text).strip()[:400]
