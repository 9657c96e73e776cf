"""`kit.start`: a program with the guest kit, from start to its answer, beside the bare interpreter.

The interpreter, its options and its environment are a jail's, without the jail, which costs both
sides the same. Only the kit and a function of this file are run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.figure import Figure, Sides
from subako_ray.sandbox.guest_kit import KIT_TARGET, GuestKit, kit_files

PROGRAM: Final = """
from subako_function import serve, tool

@tool
def add(a: int, b: int) -> dict[str, int]:
    "Adds two integers."
    return {"sum": a + b}

serve()
"""
REQUEST: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "add",
        "arguments": {"a": 2, "b": 3},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}


@contextmanager
def sides() -> Iterator[Sides]:
    """Both as new processes; the kit lies with its byte code where its path says."""
    kit = GuestKit.load()
    with tempfile.TemporaryDirectory() as folder:
        for mount in kit_files():
            path = Path(folder) / Path(mount.target).relative_to(KIT_TARGET)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(mount.content)
        environment = {**dict(kit.environment), "PYTHONPATH": folder}

        def run(program: str, given: bytes) -> bytes:
            return subprocess.run(
                [sys.executable, "-S", "-c", program],
                env=environment,
                input=given,
                stdout=subprocess.PIPE,
                check=True,
            ).stdout

        def ours() -> None:
            answer = json.loads(run(PROGRAM, json.dumps(REQUEST).encode() + b"\n"))
            assert answer["result"]["structuredContent"] == {"sum": 5}, answer

        yield Sides(ours=ours, peer=lambda: run("pass", b""))


FIGURE: Final = Figure(name="kit.start", limit=10, unit="milliseconds", runs=41, sides=sides)
