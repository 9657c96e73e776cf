"""How a figure is measured and reported; no clock of the machine takes part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest

from benchmarks.figure import Figure, Measured, Sides, measure


class Machine:
    """A clock that only the two sides move, and the order they ran in."""

    def __init__(self, ours: list[float], peer: list[float]) -> None:
        self.now = 0.0
        self.times = {"ours": iter(ours), "peer": iter(peer)}
        self.order: list[str] = []

    def run(self, side: str) -> None:
        self.order.append(side)
        self.now += next(self.times[side])

    @contextmanager
    def sides(self) -> Iterator[Sides]:
        yield Sides(ours=lambda: self.run("ours"), peer=lambda: self.run("peer"))


def figure(machine: Machine, unit: Literal["ratio", "milliseconds"], limit: float) -> Figure:
    return Figure(name="part.thing", limit=limit, unit=unit, runs=3, sides=machine.sides)


def test_the_sides_run_by_turns_after_one_run_that_is_not_timed() -> None:
    machine = Machine(ours=[9.0, 1.0, 1.0, 1.0], peer=[9.0, 2.0, 2.0, 2.0])

    measured = measure(figure(machine, "ratio", 0.8), clock=lambda: machine.now)

    assert machine.order == ["ours", "peer", *["peer", "ours"] * 3]
    assert (measured.ours, measured.peer) == (1.0, 2.0)


def test_one_slow_run_does_not_move_the_figure() -> None:
    machine = Machine(ours=[0.0, 1.0, 50.0, 1.0], peer=[0.0, 2.0, 2.0, 2.0])

    measured = measure(figure(machine, "ratio", 0.8), clock=lambda: machine.now)

    assert measured.value == 0.5


@pytest.mark.parametrize(
    ("unit", "limit", "keeps"),
    [("ratio", 0.8, True), ("ratio", 0.7, False), ("milliseconds", -400, False)],
)
def test_a_value_over_its_limit_does_not_keep_it(
    unit: Literal["ratio", "milliseconds"], limit: float, keeps: bool
) -> None:
    machine = Machine(ours=[], peer=[])

    measured = Measured(figure=figure(machine, unit, limit), ours=0.75, peer=1.0)

    assert measured.keeps_limit is keeps


def test_a_figure_is_one_json_object_with_its_times_in_seconds() -> None:
    machine = Machine(ours=[], peer=[])

    measured = Measured(figure=figure(machine, "milliseconds", 10), ours=0.025, peer=0.02)

    assert measured.as_json() == {
        "figure": "part.thing",
        "value": 5.0,
        "limit": 10,
        "better": "lower",
        "unit": "milliseconds",
        "ours": 0.025,
        "peer": 0.02,
        "runs": 3,
    }
