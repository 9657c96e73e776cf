"""A line of a source as a terminal shows it, with columns that line up under it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final

from subako_ray.compiler.credential_shapes import MASK
from subako_ray.compiler.source import Source, Span
from subako_ray.schema.printable import printable

_TAB: Final = "    "
_CHARACTERS: Final = 140
_BEFORE: Final = 40
_CUT: Final = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """What to print of a line, and where a place in it begins and ends, in terminal columns."""

    text: str
    start: int
    end: int


def snippet(source: Source, line: Span, place: Span) -> Snippet:
    """Makes a line printable, cut around the place when it is long.

    Args:
        source: the text.
        line: the line's place.
        place: what to point at; what of it is on other lines is left out.
    """
    shown = _window(line, place)
    lead = _CUT if shown.start > line.start else ""
    tail = _CUT if shown.end < line.end else ""
    cells = _cells(source, shown)
    widths = [sum(_width(character) for character in cell) for cell in cells]
    first = min(max(place.start - shown.start, 0), len(cells))
    last = min(max(place.end - shown.start, first), len(cells))
    start = len(lead) + sum(widths[:first])
    return Snippet(
        text=lead + "".join(cells) + tail,
        start=start,
        end=max(start + sum(widths[first:last]), start + 1),
    )


def _window(line: Span, place: Span) -> Span:
    """What is shown of a line: all of it, or what is around the place when it is long."""
    if line.end - line.start <= _CHARACTERS:
        return line
    start = max(line.start, min(place.start, line.end) - _BEFORE)
    return Span(line.path, start, min(start + _CHARACTERS, line.end))


def _cells(source: Source, line: Span) -> list[str]:
    """What is shown for each character: itself, its escape, or stars for all of a secret."""
    cells = [
        _TAB if character == "\t" else printable(character)
        for character in source.text[line.start : line.end]
    ]
    for secret in source.hidden(line):
        first = max(secret.start - line.start, 0)
        last = min(secret.end - line.start, len(cells))
        cells[first:last] = [MASK, *[""] * (last - first - 1)]
    return cells


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
