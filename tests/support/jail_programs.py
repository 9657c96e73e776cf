"""Jails for the tests of jails: their specification, and finding their processes from outside."""

import asyncio
import secrets
from pathlib import Path

from subako_ray.sandbox.spec import JailLimits, JailSpec, Mount

MEBIBYTE = 1 << 20


def limits(
    *,
    wall_seconds: float | None = 10.0,
    memory_mib: int = 128,
    processes: int = 32,
    stderr_bytes: int = 4096,
) -> JailLimits:
    return JailLimits(
        wall_seconds=wall_seconds,
        memory_bytes=memory_mib * MEBIBYTE,
        processes=processes,
        cpu_seconds=10,
        file_bytes=64 * MEBIBYTE,
        open_files=64,
        temporary_bytes=16 * MEBIBYTE,
        stderr_bytes=stderr_bytes,
    )


def python(
    source: str,
    *arguments: str,
    limits: JailLimits = limits(),  # noqa: B008 - frozen
    mounts: tuple[Mount, ...] = (),
) -> JailSpec:
    return JailSpec(
        argv=("python3", "-I", "-S", "-E", "-c", source, *arguments),
        cwd="/tmp",
        limits=limits,
        mounts=mounts,
    )


def new_mark() -> str:
    """Returns a word that only the processes it is given to have in their command line."""
    return f"mark-{secrets.token_hex(8)}"


def marked(mark: str) -> list[int]:
    """Returns the host's numbers of the processes with this word, zombies not counted."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words:
            found.append(int(folder.name))
    return found


async def nothing_left(mark: str, *, seconds: float = 5.0) -> None:
    """Waits until no process has this word."""
    async with asyncio.timeout(seconds):
        while marked(mark):
            await asyncio.sleep(0.005)


def status(process_id: int) -> dict[str, str]:
    text = Path(f"/proc/{process_id}/status").read_text()
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
