"""Diagnostics as JSON, for programs: the same data, places as lines, columns and offsets."""

from __future__ import annotations

import json
from typing import Any

from subako_ray.compiler.diagnostic import Label, Report
from subako_ray.compiler.render.safe_text import SafeText
from subako_ray.compiler.source import Source, Span


def render_json(report: Report) -> str:
    """Writes a report as one JSON object: `{"diagnostics": [...]}`.

    Lines and columns count from 1, offsets from 0; all count characters. A label's `end` is the
    first place after it.
    """
    safe = SafeText(report)

    def place(span: Span) -> dict[str, Any]:
        source = report.sources[span.path]
        return {
            "file": safe.path(span.path),
            "start": _point(source, span.start),
            "end": _point(source, span.end),
        }

    def label(one: Label, *, primary: bool) -> dict[str, Any]:
        return {**place(one.span), "primary": primary, "text": safe(one.text)}

    diagnostics = [
        {
            "rule": one.rule,
            "severity": one.severity,
            "message": safe(one.message),
            "labels": [
                label(one.primary, primary=True),
                *(label(other, primary=False) for other in one.secondary),
            ],
            "notes": [safe(note) for note in one.notes],
            "help": None if one.help is None else safe(one.help),
            "fix": None
            if one.fix is None
            else {**place(one.fix.span), "replacement": safe(one.fix.replacement)},
        }
        for one in report.diagnostics
    ]
    return json.dumps({"diagnostics": diagnostics}, indent=2, ensure_ascii=False) + "\n"


def _point(source: Source, offset: int) -> dict[str, int]:
    line, column = source.position(offset)
    return {"line": line, "column": column, "offset": offset}
