"""Reports as text: one file per format."""

from __future__ import annotations

from typing import assert_never

from subako_ray.compiler.diagnostic import Format, Report
from subako_ray.compiler.render.concise import render_concise
from subako_ray.compiler.render.full import render_full
from subako_ray.compiler.render.json import render_json

__all__ = ["render"]


def render(report: Report, output: Format, *, colour: bool = False) -> str:
    """Writes a report in a format; ends with a newline unless there is nothing to say.

    Args:
        report: what to write.
        output: the format.
        colour: with terminal colours, where the format has any.
    """
    match output:
        case "full":
            return render_full(report, colour=colour)
        case "concise":
            return render_concise(report)
        case "json":
            return render_json(report)
        case _:
            assert_never(output)
