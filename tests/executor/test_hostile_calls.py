"""Names, arguments and results that no log or model could take: every call still has one end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from session_bench import PERSON, OpenBench, builtin_grant, make_plan, mcp_grant

from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.result_cap import cap
from subako_ray.schema import limits
from subako_ray.schema.events import CallEnded, CallRequested, FormRefused, FormRequested
from subako_ray.schema.outcome import LinkBlock, MediaBlock, Outcome, TextBlock
from subako_ray.testing.scripted_source import ScriptedSource, tool


def nested(depth: int) -> Any:
    """A value that nests so deep."""
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "name",
    ["\ud800", "mcp__orders__\ud800", "mcp__orders__\0\u202e", "x" * 1_000_000, ""],
    ids=["surrogate", "surrogate in a tool", "control and bidi", "a megabyte", "empty"],
)
async def test_a_call_of_any_name_is_logged_once_and_ends_once(
    open_bench: OpenBench, name: str
) -> None:
    bench = await open_bench(make_plan(mcp_grant()), ScriptedSource(tools=(tool("send"),)))
    outcome = await bench.session.call(name, "{}", "engine")
    assert (outcome.status, outcome.reason) == ("tool_failed", "unknown_tool")
    (requested,) = bench.events(CallRequested)
    (ended,) = bench.events(CallEnded)
    assert requested.call_id == ended.call_id
    assert len(requested.name) <= 200


@pytest.mark.parametrize("depth", [65, 198, 252, 255, 100_000])
async def test_arguments_that_nest_deeper_than_the_limit_are_the_calls_error(
    open_bench: OpenBench, depth: int
) -> None:
    source = ScriptedSource(tools=(tool("send"),))
    bench = await open_bench(make_plan(mcp_grant()), source)
    text = '{"a":' * depth + "1" + "}" * depth
    outcome = await bench.session.call("mcp__orders__send", text, "engine")
    assert (outcome.status, outcome.reason) == ("tool_failed", "invalid_arguments")
    assert len(bench.events(CallRequested)) == len(bench.events(CallEnded)) == 1
    assert source.calls == []


async def test_arguments_at_the_limit_of_depth_reach_the_source(open_bench: OpenBench) -> None:
    source = ScriptedSource(tools=(tool("send"),))
    bench = await open_bench(make_plan(mcp_grant()), source)
    depth = limits.ARGUMENTS_DEPTH
    text = '{"a":' * depth + "1" + "}" * depth
    outcome = await bench.session.call("mcp__orders__send", text, "engine")
    assert outcome.status == "succeeded"
    assert source.calls[0].arguments == nested(depth)


@pytest.mark.parametrize("depth", [198, 254, 400])
async def test_a_result_that_nests_too_deep_is_left_out_and_the_log_can_be_read(
    open_bench: OpenBench, depth: int
) -> None:
    answer = Outcome(status="succeeded", structured=nested(depth))
    source = ScriptedSource(tools=(tool("send"),), answer=answer)
    bench = await open_bench(make_plan(mcp_grant()), source)
    outcome = await bench.session.call("mcp__orders__send", "{}", "engine")
    assert outcome.status == "succeeded"
    assert outcome.structured is None
    assert "left out: structured content" in outcome.text
    assert [event.outcome for event in bench.events(CallEnded)] == [outcome]


@pytest.mark.parametrize(
    "block",
    [
        MediaBlock(type="image", data="\ud800", mime_type="image/\udfff"),
        LinkBlock(uri="a:\ud800", name="\ud800", mime_type="\ud800"),
    ],
    ids=["image", "link"],
)
async def test_lone_surrogates_anywhere_in_a_result_are_replaced(
    open_bench: OpenBench, block: MediaBlock | LinkBlock
) -> None:
    source = ScriptedSource(
        tools=(tool("send"),), answer=Outcome(status="succeeded", content=(block,))
    )
    bench = await open_bench(make_plan(mcp_grant()), source)
    outcome = await bench.session.call("mcp__orders__send", "{}", "engine")
    assert outcome.status == "succeeded"
    assert len(bench.events(CallEnded)) == 1


@pytest.mark.parametrize(
    "block",
    [
        TextBlock(text=""),
        TextBlock(text="x" * 1000),
        MediaBlock(type="image", data="AAAA", mime_type="i" * 1000),
        LinkBlock(uri="", mime_type="m" * 1000),
    ],
    ids=["empty text", "text", "a long type", "a long type of a link"],
)
def test_many_small_blocks_stay_under_the_cap_too(
    block: TextBlock | MediaBlock | LinkBlock,
) -> None:
    capped = cap(Outcome(status="succeeded", content=(block,) * 100_000), limit_bytes=10_000)
    assert len(capped.model_dump_json()) < 300_000
    assert "more" in capped.text or "left out" in capped.text


async def test_a_form_answer_with_a_lone_surrogate_is_refused_and_the_form_stays_open(
    open_bench: OpenBench,
) -> None:
    bench = await open_bench(make_plan(builtin_grant("ask_user")))
    question = '{"message":"?","schema":{"type":"object","properties":{"a":{"type":"string"}}}}'
    asking = asyncio.create_task(bench.session.call("builtin__ask_user__ask", question, "engine"))
    call_id = (await bench.until(FormRequested)).call_id
    with pytest.raises(ExecutorError) as refused:
        bench.session.answer(call_id, "accept", '{"a":"\\ud800"}', PERSON)
    assert refused.value.code == "invalid_request"
    assert len(bench.events(FormRefused)) == 1
    bench.session.answer(call_id, "accept", '{"a":"x"}', PERSON)
    assert (await asking).status == "succeeded"
