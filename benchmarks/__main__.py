"""Measures the project's figures: one JSON line each, and on a terminal a table after them.

Exit codes: 0 every figure keeps its limit, 1 one does not, 2 there is no such figure.
"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks import call_function, compile_support, kit_start
from benchmarks.figure import Figure, Measured, measure

FIGURES: tuple[Figure, ...] = (compile_support.FIGURE, call_function.FIGURE, kit_start.FIGURE)


def row(measured: Measured) -> str:
    """The figure's row in the table for people."""
    figure = measured.figure
    verdict = "within" if measured.keeps_limit else "OVER"
    return (
        f"{figure.name:<18} {measured.value:>8.2f} {figure.unit:<12}"
        f" limit {figure.limit:<6g} {verdict:<7}"
        f" ours {measured.ours * 1000:.1f} ms, peer {measured.peer * 1000:.1f} ms,"
        f" medians of {figure.runs}"
    )


def main() -> int:
    """Measures what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="measure the figures")
    parser.add_argument("--only", metavar="NAME", choices=[figure.name for figure in FIGURES])
    only = parser.parse_args().only
    done = []
    for figure in FIGURES:
        if only not in (None, figure.name):
            continue
        done.append(measure(figure))
        print(json.dumps(done[-1].as_json()), flush=True)
    if sys.stdout.isatty():
        print("", *map(row, done), sep="\n")
    return 0 if all(measured.keeps_limit for measured in done) else 1


if __name__ == "__main__":
    sys.exit(main())
