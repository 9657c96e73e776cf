"""A text that was compiled, places in it, and which of them must never be shown."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

_LINE_BREAK = re.compile(r"\r\n|\n|\r")


class Span(NamedTuple):
    """A place: the characters `start` to `end` (exclusive) of the source at `path`."""

    path: str
    start: int
    end: int


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
        return replace(self, secrets=tuple(merged([*self.secrets, *secrets])))

    def hidden(self, span: Span) -> list[Span]:
        """Returns the hidden places that share a character with a place."""
        return overlapping(self.secrets, span)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Returns the places of one source in order, those that touch made one."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.start <= found[-1].end:
            found[-1] = found[-1]._replace(end=max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def overlapping(spans: Sequence[Span], place: Span) -> list[Span]:
    """Returns which of the places, in order and apart, share a character with another."""
    first = bisect_right(spans, place.start, key=lambda span: span.end)
    last = bisect_left(spans, place.end, key=lambda span: span.start)
    return list(spans[first:last])
