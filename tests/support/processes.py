"""Processes of this machine, as tests look for them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path


def processes_of(marker: str) -> list[int]:
    """Processes of this machine that have the marker among their arguments."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if marker.encode() in words and b"/bin/sleep" in words:
            found.append(int(folder.name))
    return found


async def gone(marker: str, seconds: float = 10) -> bool:
    """Waits (bounded) until no process has the marker."""
    async with asyncio.timeout(seconds):
        while processes_of(marker):
            await asyncio.sleep(0.02)
    return True


async def appeared(marker: str, count: int, seconds: float = 20) -> bool:
    """Waits (bounded) until so many processes have the marker."""
    async with asyncio.timeout(seconds):
        while len(processes_of(marker)) < count:
            await asyncio.sleep(0.02)
    return True


def descendants(pid: int) -> dict[int, str]:
    """Command lines of all processes below one, by pid."""
    found: dict[int, str] = {}
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            with contextlib.suppress(OSError):
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace")
            found |= descendants(child)
    return found


def kill_with_descendants(pid: int) -> None:
    """Ends a process and all below it at once."""
    for each in (pid, *descendants(pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
