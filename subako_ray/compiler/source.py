"""A text that was compiled, places in it, and which of them must never be shown."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import NamedTuple

_LINE_BREAK = re.compile(r"\r\n|\n|\r")


class Span(NamedTuple):
    """A place: the characters `start` to `end` (exclusive) of the source at `path`."""

    path: str
    start: int
    end: int

    def covers(self, other: Span) -> bool:
        """Says whether the other place lies within this one."""
        return self.path == other.path and self.start <= other.start and other.end <= self.end

    def overlaps(self, other: Span) -> bool:
        """Says whether the two places share a character."""
        return self.path == other.path and self.start < other.end and other.start < self.end


class Position(NamedTuple):
    """A place as people count it: line and column, both from 1, columns in characters."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One text and its path below the root, as it is shown.

    `secrets` are the places that no output may show, in order and apart.
    """

    path: str
    text: str
    secrets: tuple[Span, ...] = ()
    _line_starts: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0, *(found.end() for found in _LINE_BREAK.finditer(self.text))]
        object.__setattr__(self, "_line_starts", starts)

    def span(self, start: int, end: int) -> Span:
        """Returns the place from one character offset to another, kept within the text."""
        length = len(self.text)
        first = min(max(start, 0), length)
        return Span(self.path, first, min(max(end, first), length))

    def position(self, offset: int) -> Position:
        """Returns line and column of a character offset."""
        line = bisect_right(self._line_starts, offset)
        return Position(line, offset - self._line_starts[line - 1] + 1)

    def line_span(self, line: int) -> Span:
        """Returns the place of a line (from 1), without its line break."""
        line = min(max(line, 1), len(self._line_starts))
        start = self._line_starts[line - 1]
        last = line == len(self._line_starts)
        end = len(self.text) if last else self._line_starts[line]
        while end > start and self.text[end - 1] in "\r\n":
            end -= 1
        return Span(self.path, start, end)

    def hiding(self, secrets: tuple[Span, ...]) -> Source:
        """Returns the source with more places hidden."""
        merged: list[Span] = []
        for span in sorted({*self.secrets, *secrets}):
            if merged and span.start <= merged[-1].end:
                merged[-1] = merged[-1]._replace(end=max(merged[-1].end, span.end))
            else:
                merged.append(span)
        return replace(self, secrets=tuple(merged))
