"""A package made with the kit: one tool per thing that the tests ask."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from subako_function import ToolError, progress, serve, tool

print("stray: written while the package loads", flush=True)
os.system("echo stray: written by a child")


@dataclass
class Point:
    x: float
    y: float = 0.0


@tool(read_only=True)
def add(a: int, b: int = 1) -> dict[str, int]:
    """Adds two integers.

    Args:
        a: the first.
        b: the second.
    """
    print("stray: written while the tool runs", flush=True)
    return {"sum": a + b}


@tool
def mirror(point: Point) -> Point:
    """Mirrors a point."""
    return Point(x=-point.x, y=-point.y)


@tool
async def later(text: str) -> str:
    """Gives the text back, asynchronously."""
    import asyncio

    await asyncio.sleep(0)
    return text


@tool
def echo(value: object) -> dict[str, object]:
    """Gives any value back."""
    return {"value": value}


@tool
def refuse(reason: str) -> str:
    """Refuses with a reason."""
    raise ToolError(reason)


@tool
def crash() -> str:
    """Raises."""
    raise ValueError("broken inside")


@tool
def count(to: int) -> str:
    """Counts, and reports each step."""
    for number in range(to):
        progress(number + 1, to, "counting")
    return "counted"


@tool
def trace() -> dict[str, object]:
    """Says what can be seen of earlier calls, and leaves traces for later ones."""
    seen = sorted(str(path) for path in Path("/tmp").iterdir())
    seen += sorted(str(path) for path in Path("/dev/shm").iterdir())
    Path("/tmp/trace").write_text("x")
    Path("/dev/shm/trace").write_text("x")
    refused = []
    for place in ("/package/trace", "/opt/subako/trace", "/trace"):
        try:
            Path(place).write_text("x")
        except OSError:
            refused.append(place)
    return {
        "seen": seen,
        "refused": refused,
        "environment": sorted(os.environ),
        "folder": str(Path.cwd()),
        "paths": sys.path,
        "input": sys.stdin.read(),
    }


serve(name="workshop", version="1")
