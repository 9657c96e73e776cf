"""A line of a source as a terminal shows it, with columns that line up under it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final

from subako_ray.compiler.credential_shapes import MASK
from subako_ray.compiler.source import Source, Span
from subako_ray.schema.printable import printable

_TAB: Final = "    "
_COLUMNS: Final = 140
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
    cells = _cells(source, line)
    widths = [sum(_width(character) for character in cell) for cell in cells]
    first = min(max(place.start - line.start, 0), len(cells))
    last = min(max(place.end - line.start, first), len(cells))
    start = sum(widths[:first])
    end = max(start + sum(widths[first:last]), start + 1)
    if sum(widths) <= _COLUMNS:
        return Snippet(text="".join(cells), start=start, end=end)
    return _cut(cells, widths, start, end)


def _cut(cells: list[str], widths: list[int], start: int, end: int) -> Snippet:
    left = max(start - _BEFORE, 0)
    shown: list[str] = []
    column = offset = 0
    for cell, width in zip(cells, widths, strict=True):
        if column < left:
            offset = column + width
        elif column + width <= left + _COLUMNS:
            shown.append(cell)
        column += width
    lead = _CUT if left else ""
    tail = _CUT if column > left + _COLUMNS else ""
    shift = len(lead) - offset
    return Snippet(
        text=lead + "".join(shown) + tail,
        start=start + shift,
        end=min(end + shift, len(lead) + _COLUMNS),
    )


def _cells(source: Source, line: Span) -> list[str]:
    """What is shown for each character: itself, its escape, or stars for all of a secret."""
    cells = [
        _TAB if character == "\t" else printable(character)
        for character in source.text[line.start : line.end]
    ]
    for secret in source.secrets:
        if not secret.overlaps(line):
            continue
        first = max(secret.start - line.start, 0)
        last = min(secret.end - line.start, len(cells))
        cells[first:last] = [MASK, *[""] * (last - first - 1)]
    return cells


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
