"""Starting the jailer process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import subako_ray
from subako_ray.sandbox.binary import locate_nsjail
from subako_ray.sandbox.handover import Finding, decode_findings
from subako_ray.sandbox.spec import IsolationSettings, JailUnavailable

BOOT: Final = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from subako_ray.sandbox.jailer import main; main(sys.argv[2:])"
)
FINDINGS_BYTES: Final = 65_536
START_SECONDS: Final = 60.0
"""How long a host may take for the findings, two trial jails included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A jailer that is starting: its first message is its findings."""

    process: subprocess.Popen[bytes]
    control: socket.socket


def launch(settings: IsolationSettings) -> Launched:
    """Starts a jailer.

    Raises:
        JailUnavailable: there is no nsjail.
    """
    nsjail = locate_nsjail(settings)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    root = Path(subako_ray.__file__).parent.parent
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                # Isolated, without `site`: only the standard library and this package.
                *("-I", "-S", "-E", "-c", BOOT, str(root)),
                *(str(theirs.fileno()), str(nsjail), settings.limits),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            # Some interpreters do not start without it; nothing else of the worker's is needed.
            env={k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return Launched(process=process, control=ours)


def check_findings(data: bytes) -> tuple[Finding, ...]:
    """Reads a jailer's findings.

    Raises:
        JailUnavailable: the host cannot isolate.
    """
    if not data:
        raise JailUnavailable(
            "the jailer ended before it was ready", "see its standard error, then `subako doctor`"
        )
    findings = decode_findings(data)
    for finding in findings:
        if finding.state == "missing":
            raise JailUnavailable(finding.detail, finding.help_text)
    return findings
