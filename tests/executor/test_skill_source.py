"""The skill source reads the files of its bundle and no other file."""

from __future__ import annotations

from pathlib import Path

import pytest

from subako_ray.executor.source import SourceCall
from subako_ray.executor.sources.skill import SkillSource
from subako_ray.schema.fixed_tools import SKILL_READ
from subako_ray.schema.outcome import Outcome
from subako_ray.schema.plan import plan_tool


@pytest.fixture
def skill(tmp_path: Path) -> SkillSource:
    """A skill of three files, beside a file that is none of them."""
    folder = tmp_path / "bundle"
    (folder / "deep").mkdir(parents=True)
    (folder / "SKILL.md").write_text("the skill")
    (folder / "deep" / "more.md").write_text("more")
    (folder / "logo.png").write_bytes(b"\x89PNG\xff")
    (folder / "unlisted.md").write_text("canary")
    (tmp_path / "outside.md").write_text("canary")
    tools = (
        plan_tool("skill", "s", SKILL_READ.name, "allow", input_schema=SKILL_READ.input_schema),
    )
    return SkillSource("s", tools, folder, ("SKILL.md", "deep/more.md", "logo.png"))


async def read(skill: SkillSource, **arguments: str) -> Outcome:
    """Calls `read`."""
    return await skill.call(
        SourceCall(call_id="c", tool="read", arguments=arguments, argument_bytes=b"")
    )


async def test_without_a_path_it_lists_the_files(skill: SkillSource) -> None:
    assert (await read(skill)).text == "SKILL.md\ndeep/more.md\nlogo.png"


async def test_it_reads_a_file_by_the_name_it_lists(skill: SkillSource) -> None:
    assert (await read(skill, path="deep/more.md")).text == "more"


async def test_a_file_that_is_not_text_is_named_so(skill: SkillSource) -> None:
    outcome = await read(skill, path="logo.png")
    assert (outcome.status, outcome.reason) == ("tool_failed", "not_text")


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "a/../../x",
        "../outside.md",
        "deep/../unlisted.md",
        "deep/../SKILL.md",
        "./SKILL.md",
        "SKILL.md\0",
        "\0",
        "unlisted.md",
        "missing.md",
        "deep",
        "",
        ".",
    ],
)
async def test_k2_only_files_of_the_bundle_can_be_read(skill: SkillSource, path: str) -> None:
    outcome = await read(skill, path=path)
    assert (outcome.status, outcome.reason) == ("tool_failed", "no_such_file")
    assert "canary" not in outcome.text
    assert "root:" not in outcome.text
