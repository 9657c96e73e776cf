"""What `subako run` refuses before anything starts, and how it conducts when things go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from session_bench import builtin_grant, make_plan

from subako_ray.cli.command import CommandError
from subako_ray.cli.conductor import Conductor, field_value
from subako_ray.cli.main import main
from subako_ray.cli.run import _load_client
from subako_ray.cli.script import Entry, read_script
from subako_ray.executor.client_tools import Client, ClientToolError
from subako_ray.executor.cluster import Cluster, SessionHandle
from subako_ray.executor.cluster.plain import Done
from subako_ray.executor.session_host import CreatedSession, SessionRequest
from subako_ray.schema import limits
from subako_ray.schema.events import CatalogueChanged, Record
from subako_ray.schema.outcome import Outcome

DEEP = '{"a":' * 300 + "1" + "}" * 300


@pytest.mark.parametrize("text", ['{"a":"\\ud800"}', DEEP], ids=["surrogate", "deep"])
def test_arguments_that_no_session_takes_are_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(make_plan(builtin_grant("session")).to_bytes())
    state = str(tmp_path / "state")
    code = main(["run", str(plan), "--state", state, "--call", "builtin__session__name", text])
    assert code == 2
    assert "starting Ray" not in capsys.readouterr().err


@pytest.mark.parametrize("value", [".inf", '"\\ud800"', ".nan"])
def test_a_script_whose_data_is_not_json_is_a_problem_with_its_place(
    tmp_path: Path, value: str
) -> None:
    script = tmp_path / "calls.yaml"
    script.write_text(f"calls:\n  - call: a\n    arguments: {{a: {value}}}\n")
    with pytest.raises(CommandError) as refused:
        read_script(script)
    assert f"{script}:" in refused.value.message


@pytest.mark.parametrize("text", ["--5", "1e5", "", "٣x", "9" * 5000])
def test_text_that_is_no_integer_stays_text(text: str) -> None:
    assert field_value(text, {"type": "integer"}) == text


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e999"])
def test_text_that_is_no_finite_number_stays_text(text: str) -> None:
    assert field_value(text, {"type": "number"}) == text


def test_a_client_file_may_define_dataclasses(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from subako_ray.executor.client_tools import Client\n"
        "@dataclass\nclass Shop:\n    name: str\n"
        "CLIENT = Client('shop')\n"
    )
    assert _load_client(str(file)).name == "shop"


@pytest.mark.parametrize("code", ["raise SystemExit(0)", "raise ValueError('a\\x1b[2Jb\\nc')"])
def test_a_client_file_that_ends_or_breaks_is_a_problem_on_one_safe_line(
    tmp_path: Path, code: str
) -> None:
    file = tmp_path / "shop.py"
    file.write_text(code)
    with pytest.raises(CommandError, match="cannot be loaded") as refused:
        _load_client(str(file))
    assert refused.value.message.isprintable()
    assert refused.value.code == 1


@pytest.mark.parametrize("error", [ClientToolError, ValueError])
async def test_a_long_error_of_an_application_is_an_answer_the_session_takes(
    error: type[Exception],
) -> None:
    client = Client("shop")

    @client.tool(description="", parameters={"type": "object"})
    def fails(arguments: dict[str, Any]) -> str:
        raise error("x" * 1_000_000)

    result = await client.run("fails", {})
    assert result.is_error
    assert len(result.text) <= limits.CLIENT_RESULT_CHARACTERS


class Handle:
    """A session whose calls never end of themselves."""

    def __init__(self) -> None:
        self.ended: list[bool] = []

    async def events(self) -> AsyncIterator[Record]:
        """Opens, then waits."""
        opened = CatalogueChanged(tools=(), left_out=(), unavailable=())
        yield Record(session_id="s", seq=1, at="", event=opened)
        yield Record(session_id="s", seq=2, at="", event=opened)
        await asyncio.Event().wait()

    async def call(self, name: str, text: str) -> Outcome:
        """Waits for a decision nobody makes."""
        await asyncio.Event().wait()
        raise AssertionError

    async def end(self, *, cancelled: bool, requested_by: str) -> None:
        """Counts."""
        self.ended.append(cancelled)


async def test_when_nobody_reads_the_transcript_any_more_the_session_is_cancelled() -> None:
    handle, shown = Handle(), []

    def show(record: Record) -> None:
        shown.append(record)
        if len(shown) == 2:
            raise BrokenPipeError

    conductor = Conductor(
        session=cast("SessionHandle", handle),
        principal="user:ada",
        show=show,
        note=lambda _: None,
        interactive=False,
    )
    async with asyncio.timeout(5):
        with pytest.raises(BrokenPipeError):
            await conductor.run([Entry(call="a")], {})
    assert handle.ended == [True]


async def test_a_session_whose_maker_was_stopped_meanwhile_is_ended() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()
    ended: list[tuple[object, ...]] = []
    made = CreatedSession(
        session_id="session_1",
        clients=(),
        catalogue=CatalogueChanged(tools=(), left_out=(), unavailable=()),
    )

    class Create:
        @staticmethod
        async def remote(request: SessionRequest) -> Done[CreatedSession]:
            asked.set()
            await go_on.wait()
            return Done(made)

    class End:
        @staticmethod
        async def remote(*arguments: object) -> Done[None]:
            ended.append(arguments)
            return Done(None)

    class Host:
        create = Create
        end = End

    cluster = Cluster(Host, None, None, local=False)
    making = asyncio.create_task(
        cluster.create_session(SessionRequest(plan=b"", principal="user:ada"))
    )
    await asked.wait()
    making.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert ended == [("session_1", True, "user:ada")]
