"""A figure: ours beside a peer's on the same work, and the limit that their ratio must keep."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, NamedTuple

Seconds = float


class Sides(NamedTuple):
    """The two sides of a figure, ready to be timed; each call is one run.

    What a run needs (a cluster, a session, a file) is there before the first one.
    """

    ours: Callable[[], object]
    peer: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What is measured.

    Attributes:
        name: starts with the part it measures.
        limit: what the value must not pass.
        unit: `ratio` is ours over the peer's; `milliseconds` is how much longer ours takes.
        runs: pairs that are timed, after one that is not.
        sides: opens what the runs need, and closes it.
    """

    name: str
    limit: float
    unit: Literal["ratio", "milliseconds"]
    runs: int
    sides: Callable[[], AbstractContextManager[Sides]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Medians of one figure's runs; times in seconds."""

    figure: Figure
    ours: Seconds
    peer: Seconds

    @property
    def value(self) -> float:
        """What is held against the limit."""
        if self.figure.unit == "ratio":
            return self.ours / self.peer
        return (self.ours - self.peer) * 1000

    @property
    def keeps_limit(self) -> bool:
        """Whether the value is within the limit."""
        return self.value <= self.figure.limit

    def as_json(self) -> dict[str, object]:
        """The figure's line for programs."""
        return {
            "figure": self.figure.name,
            "value": round(self.value, 3),
            "limit": self.figure.limit,
            "better": "lower",
            "unit": self.figure.unit,
            "ours": round(self.ours, 5),
            "peer": round(self.peer, 5),
            "runs": self.figure.runs,
        }


def measure(figure: Figure, clock: Callable[[], Seconds] = time.perf_counter) -> Measured:
    """Runs both sides by turns, so that what else the machine does falls on both."""
    with figure.sides() as sides:
        ours: list[Seconds] = []
        peer: list[Seconds] = []
        sides.ours()
        sides.peer()
        for _ in range(figure.runs):
            for side, times in ((sides.peer, peer), (sides.ours, ours)):
                started = clock()
                side()
                times.append(clock() - started)
    return Measured(figure=figure, ours=statistics.median(ours), peer=statistics.median(peer))
