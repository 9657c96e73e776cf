"""`compile.support`: compiling the example beside checking it with a general schema checker."""

from __future__ import annotations

import compileall
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.command import run_quietly
from benchmarks.figure import Figure, Sides

ROOT: Final = Path(__file__).parents[1]
VERSION: Final = ROOT / "examples" / "support" / "version.yaml"
SCHEMA: Final = ROOT / "subako_ray" / "schema" / "version.schema.json"
SCRIPTS: Final = Path(sys.executable).parent


@contextmanager
def sides() -> Iterator[Sides]:
    """Both as the commands that a CI job runs, from start to exit."""
    # Installing a wheel makes its byte code; an editable checkout may be without, or not allowed to
    # write it (PYTHONDONTWRITEBYTECODE). The peer was installed.
    compileall.compile_dir(ROOT / "subako_ray", quiet=2)
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        yield Sides(
            ours=lambda: run_quietly(SCRIPTS / "subako", "compile", VERSION, "-o", plan),
            peer=lambda: run_quietly(SCRIPTS / "check-jsonschema", "--schemafile", SCHEMA, VERSION),
        )


FIGURE: Final = Figure(name="compile.support", limit=0.8, unit="ratio", runs=15, sides=sides)
