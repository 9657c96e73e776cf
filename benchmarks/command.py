"""Running a command as one side of a figure: quiet, and with its own message when it fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def run_quietly(*command: str | Path, environment: Mapping[str, str] | None = None) -> None:
    """Runs a command to its end; ends the measuring with its message if it fails."""
    done = subprocess.run(
        command,
        check=False,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").rstrip()
        sys.exit(f"{message}\n`{Path(command[0]).name}` ended with exit code {done.returncode}")
