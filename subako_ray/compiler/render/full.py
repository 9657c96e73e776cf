"""Diagnostics for people: message, the lines they are about, notes and help."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from subako_ray.compiler.diagnostic import Diagnostic, Label, Report
from subako_ray.compiler.render.safe_text import SafeText
from subako_ray.compiler.render.snippet import snippet
from subako_ray.compiler.source import Source

_Tone: TypeAlias = Literal["problem", "message", "frame", "other"]

# SGR parameters (ECMA-48, section 8.3.117).
_TONES: Final[dict[_Tone, str]] = {
    "problem": "1;31",
    "message": "1",
    "frame": "1;34",
    "other": "1;36",
}


def render_full(report: Report, *, colour: bool) -> str:
    """Writes a report for people, and how many problems there are at its end."""
    writer = _Writer(report, colour=colour)
    blocks = [writer.diagnostic(one) for one in report.diagnostics]
    if not blocks:
        return ""
    count = len(blocks)
    return "\n".join([*blocks, "1 problem found\n" if count == 1 else f"{count} problems found\n"])


class _Writer:
    def __init__(self, report: Report, *, colour: bool) -> None:
        self._sources = report.sources
        self._safe = SafeText(report)
        self._colour = colour

    def diagnostic(self, one: Diagnostic) -> str:
        head = self._paint(f"{one.severity}[{one.rule}]", "problem")
        lines = [f"{head}{self._paint(f': {self._safe(one.message)}', 'message')}"]
        labels = (one.primary, *one.secondary)
        margin = max(len(str(self._line(label))) for label in labels)
        for path in dict.fromkeys(label.span.path for label in labels):
            here = [label for label in labels if label.span.path == path]
            lines += self._source_lines(self._sources[path], here, one.primary, margin)
        if one.notes or one.help is not None:
            lines.append(f"{' ' * margin} {self._paint('|', 'frame')}")
        frame = self._paint("=", "frame")
        for kind, texts in (("note", one.notes), ("help", () if one.help is None else (one.help,))):
            lines += [
                f"{' ' * margin} {frame} {self._paint(kind, 'message')}: {self._safe(text)}"
                for text in texts
            ]
        return "\n".join(lines) + "\n"

    def _source_lines(
        self, source: Source, labels: list[Label], primary: Label, margin: int
    ) -> list[str]:
        first = labels[0]
        line, column = source.position(first.span.start)
        arrow = "-->" if first is primary else ":::"
        bar = self._paint("|", "frame")
        place = f"{self._safe.path(source.path)}:{line}:{column}"
        lines = [] if first is primary else [f"{' ' * margin} {bar}"]
        lines += [
            f"{' ' * margin}{self._paint(arrow, 'frame')} {place}",
            f"{' ' * margin} {bar}",
        ]
        shown: int | None = None
        for label in sorted(labels, key=lambda label: label.span.start):
            number = self._line(label)
            tone: _Tone = "problem" if label is primary else "other"
            mark = "^" if label is primary else "-"
            part = snippet(source, source.line_span(number), label.span)
            if number != shown:
                if shown is not None and number > shown + 1:
                    lines.append(self._paint("...", "frame"))
                lines.append(
                    f"{self._paint(f'{number:>{margin}} |', 'frame')} {part.text}".rstrip()
                )
                shown = number
            text = f"{mark * (part.end - part.start)} {self._safe(label.text)}".rstrip()
            lines.append(f"{' ' * margin} {bar} {' ' * part.start}{self._paint(text, tone)}")
        return lines

    def _line(self, label: Label) -> int:
        return self._sources[label.span.path].position(label.span.start).line

    def _paint(self, text: str, tone: _Tone) -> str:
        return f"\x1b[{_TONES[tone]}m{text}\x1b[0m" if self._colour else text
