"""One line for each diagnostic: `file:line:column: error[rule] message`."""

from __future__ import annotations

from subako_ray.compiler.diagnostic import Report
from subako_ray.compiler.render.safe_text import SafeText


def render_concise(report: Report) -> str:
    """Writes a report, one line a diagnostic."""
    safe = SafeText(report)
    lines = []
    for one in report.diagnostics:
        span = one.primary.span
        line, column = report.sources[span.path].position(span.start)
        place = f"{safe.path(span.path)}:{line}:{column}"
        lines.append(f"{place}: {one.severity}[{one.rule}] {safe(one.message)}\n")
    return "".join(lines)
