"""Scripts of `subako run`: a wrong one is refused with the place and what could stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from subako_ray.cli.command import CommandError
from subako_ray.cli.script import Deny, Entry, Expected, read_script, unexpected
from subako_ray.schema.outcome import ended


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1:1: "),
        ("[]", "1:1: a script is a mapping with the key `calls`"),
        ("calls: []", "1:8: `calls` must be a list of at least one call"),
        ("kalls: []", "1:1: unknown key `kalls`, did you mean `calls`?"),
        ("calls:\n - cal: x", "2:4: unknown key `cal`, did you mean `call`?"),
        ("calls:\n - {}", "2:4: the key `call` is missing here"),
        ("calls:\n - call: x\n   decide: maybe", "3:12: `decide` must be `allow`, `deny` or"),
        ("calls:\n - call: x\n   decide: {deny: ''}", "3:12: `decide` must be `allow`"),
        ("calls:\n - call: x\n   expect: {outcome: bad}", "3:22: `outcome` must be one of"),
        ("calls:\n - call: x\n   answer: {action: yes}", "3:21: `action` must be `accept`"),
        ("calls:\n - call: 5", "2:10: `call` must be the name of a tool"),
        ("calls:\n - call: [", "2:11: "),
        ("calls:\n - call: x\n   call: y", "3:4: the key `call` stands twice"),
    ],
)
def test_a_wrong_script_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    script = tmp_path / "calls.yaml"
    script.write_text(text)
    with pytest.raises(CommandError) as refused:
        read_script(script)
    assert refused.value.message.startswith(f"{script}:{said}")
    assert "literal" not in refused.value.message
    assert refused.value.code == 1


def test_a_script_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read") as refused:
        read_script(tmp_path / "none.yaml")
    assert refused.value.code == 2


def test_a_script_is_read(tmp_path: Path) -> None:
    script = tmp_path / "calls.yaml"
    script.write_text("calls:\n - {call: a, decide: {deny: why}, expect: {outcome: denied}}")
    assert read_script(script).calls == [
        Entry(call="a", decide=Deny(deny="why"), expect=Expected(outcome="denied"))
    ]


def test_what_is_not_said_must_succeed() -> None:
    entry = Entry(call="a")
    assert unexpected(entry, ended("succeeded", None, "x")) == []
    assert unexpected(entry, ended("denied", None, "x")) == ["ended as denied, expected succeeded"]
    wants = Entry(call="a", expect=Expected(outcome="denied", contains="y"))
    assert unexpected(wants, ended("denied", None, "xyz")) == []
    assert unexpected(wants, ended("denied", None, "x")) == ["its text does not contain `y`"]
