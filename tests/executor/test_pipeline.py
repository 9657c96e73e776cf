"""The pipeline of a call: what reaches a source, what does not, and what the log says."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest
from session_bench import PERSON, OpenBench, make_plan, mcp_grant

from subako_ray.executor.approvals import Decided
from subako_ray.executor.errors import ExecutorError
from subako_ray.schema.canonical import canonical_bytes, digest
from subako_ray.schema.events import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallRequested,
    CatalogueChanged,
)
from subako_ray.schema.outcome import Outcome, TextBlock, ended
from subako_ray.testing.scripted_source import ScriptedSource, tool

ALLOW = Decided(decision="allow")


async def test_an_allowed_call_reaches_its_source_after_its_intent_is_logged(
    open_bench: OpenBench,
) -> None:
    source = ScriptedSource(tools=(tool("lookup"),))
    bench = await open_bench(make_plan(mcp_grant()), source)
    outcome = await bench.session.call("mcp__orders__lookup", '{"b": 1, "a": 2.50}', "engine")
    assert outcome.status == "succeeded"
    assert [call.argument_bytes for call in source.calls] == [b'{"a":2.5,"b":1}']
    assert bench.types()[-4:] == [
        "call_requested",
        "call_intended",
        "call_dispatched",
        "call_ended",
    ]


async def test_a_denied_tool_is_not_offered_and_reads_like_one_that_does_not_exist(
    open_bench: OpenBench,
) -> None:
    source = ScriptedSource(tools=(tool("lookup"), tool("delete")))
    bench = await open_bench(make_plan(mcp_grant(delete="deny")), source)
    assert [str(entry.name) for entry in bench.session.offered()] == ["mcp__orders__lookup"]
    denied = await bench.session.call("mcp__orders__delete", "{}", "engine")
    unknown = await bench.session.call("mcp__orders__missing", "{}", "engine")
    assert denied.status == "denied"
    assert denied.text.replace("delete", "missing") == unknown.text
    assert source.calls == []


async def test_a_denied_tool_stays_denied_when_its_source_cannot_be_asked(
    open_bench: OpenBench,
) -> None:
    source = ScriptedSource(fault="unavailable")
    bench = await open_bench(make_plan(mcp_grant(delete="deny")), source)
    (catalogue,) = bench.events(CatalogueChanged)
    assert [(each.tool, each.policy, each.offered) for each in catalogue.tools] == [
        ("delete", "deny", False)
    ]
    denied = await bench.session.call("mcp__orders__delete", "{}", "engine")
    other = await bench.session.call("mcp__orders__lookup", "{}", "engine")
    assert denied.status == "denied"
    assert other.status == "source_unavailable"
    assert "`orders` cannot be reached" in other.text


async def test_n4_of_two_tools_of_one_name_exactly_the_denied_one_is_missing(
    open_bench: OpenBench,
) -> None:
    one = ScriptedSource(name="one", tools=(tool("search"),))
    two = ScriptedSource(name="two", tools=(tool("search"),))
    plan = make_plan(mcp_grant("one", search="deny"), mcp_grant("two"))
    bench = await open_bench(plan, one, two)
    assert [str(entry.name) for entry in bench.session.offered()] == ["mcp__two__search"]
    assert (await bench.session.call("mcp__one__search", "{}", "engine")).status == "denied"
    assert (await bench.session.call("mcp__two__search", "{}", "engine")).status == "succeeded"
    assert (len(one.calls), len(two.calls)) == (0, 1)


async def test_n4_of_two_tools_of_one_name_exactly_one_is_held(open_bench: OpenBench) -> None:
    one = ScriptedSource(name="one", tools=(tool("search"),))
    two = ScriptedSource(name="two", tools=(tool("search"),))
    plan = make_plan(mcp_grant("one", search="require_approval"), mcp_grant("two"))
    bench = await open_bench(plan, one, two)
    held = asyncio.create_task(bench.session.call("mcp__one__search", "{}", "engine"))
    requested = await bench.until(ApprovalRequested)
    assert (await bench.session.call("mcp__two__search", "{}", "engine")).status == "succeeded"
    assert len(one.calls) == 0
    bench.session.decide(requested.call_id, ALLOW, PERSON)
    assert (await held).status == "succeeded"


async def test_n3_a_tool_name_may_hold_the_separator(open_bench: OpenBench) -> None:
    source = ScriptedSource(tools=(tool("a__b"),))
    bench = await open_bench(make_plan(mcp_grant()), source)
    assert (await bench.session.call("mcp__orders__a__b", "{}", "engine")).status == "succeeded"
    assert source.calls[0].tool == "a__b"


async def test_a_tool_listed_twice_is_left_out_and_named(open_bench: OpenBench) -> None:
    source = ScriptedSource(tools=(tool("x"), tool("y"), tool("x"), tool("a.b")))
    bench = await open_bench(make_plan(mcp_grant()), source)
    (catalogue,) = bench.events(CatalogueChanged)
    assert [each.tool for each in catalogue.tools] == ["y"]
    assert {(each.tool, each.reason) for each in catalogue.left_out} == {
        ("x", "listed 2 times"),
        ("a.b", "holds a character that `anthropic` does not take"),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
        ('{"a": NaN}', "not JSON"),
        ('{"a": 1e999}', "too large"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ('{"a": "\\ud800"}', "lone surrogate"),
        ('{"order_id": 5}', "`/order_id` does not satisfy"),
        ("[" * 100_000, "nests too deep"),
    ],
)
async def test_wrong_arguments_never_reach_the_source(
    open_bench: OpenBench, text: str, said: str
) -> None:
    source = ScriptedSource(tools=(tool("lookup", order_id={"type": "string"}),))
    bench = await open_bench(make_plan(mcp_grant()), source)
    outcome = await bench.session.call("mcp__orders__lookup", text, "engine")
    assert (outcome.status, outcome.reason) == ("tool_failed", "invalid_arguments")
    assert said in outcome.text
    assert source.calls == []


async def test_integers_beyond_double_precision_survive_exactly(open_bench: OpenBench) -> None:
    source = ScriptedSource(tools=(tool("lookup"),))
    bench = await open_bench(make_plan(mcp_grant()), source)
    text = '{"n":1180591620717411303424}'
    await bench.session.call("mcp__orders__lookup", text, "engine")
    assert source.calls[0].argument_bytes == text.encode()
    (requested,) = bench.events(CallRequested)
    assert requested.arguments == {"n": 1180591620717411303424}
    assert requested.args_hash == digest(text.encode())


async def test_a1_what_runs_is_what_was_shown(open_bench: OpenBench) -> None:
    source = ScriptedSource(tools=(tool("send"),))
    bench = await open_bench(make_plan(mcp_grant(default="require_approval")), source)
    held = asyncio.create_task(
        bench.session.call("mcp__orders__send", '{"m":"reviewed"}', "engine")
    )
    requested = await bench.until(ApprovalRequested)
    bench.session.decide(requested.call_id, ALLOW, PERSON)
    await held
    assert source.calls[0].argument_bytes == b'{"m":"reviewed"}'
    assert requested.args_hash == digest(canonical_bytes({"m": "reviewed"}))


async def test_a3_equal_calls_are_approved_apart(open_bench: OpenBench) -> None:
    source = ScriptedSource(tools=(tool("send"),))
    bench = await open_bench(make_plan(mcp_grant(default="require_approval")), source)
    calls = [
        asyncio.create_task(bench.session.call("mcp__orders__send", "{}", "engine"))
        for _ in range(2)
    ]
    await bench.until(ApprovalRequested, 2)
    first, second = bench.events(ApprovalRequested)
    bench.session.decide(second.call_id, Decided(decision="deny", message="once only"), PERSON)
    bench.session.decide(first.call_id, ALLOW, PERSON)
    outcomes = [await call for call in calls]
    assert [outcome.status for outcome in outcomes] == ["succeeded", "denied"]
    assert outcomes[1].text == "a person denied this call: once only"
    assert [call.call_id for call in source.calls] == [first.call_id]


async def test_a4_the_first_decision_stands_and_others_are_refused_by_name(
    open_bench: OpenBench,
) -> None:
    source = ScriptedSource(tools=(tool("send"),))
    bench = await open_bench(make_plan(mcp_grant(default="require_approval")), source)
    held = asyncio.create_task(bench.session.call("mcp__orders__send", "{}", "engine"))
    call_id = (await bench.until(ApprovalRequested)).call_id
    bench.session.decide(call_id, Decided(decision="deny"), PERSON)
    for late in (ALLOW, Decided(decision="deny")):
        with pytest.raises(ExecutorError, match=call_id) as refused:
            bench.session.decide(call_id, late, PERSON)
        assert refused.value.code == "conflict"
    with pytest.raises(ExecutorError, match="call_unknown") as unknown:
        bench.session.decide("call_unknown", ALLOW, PERSON)
    assert unknown.value.code == "not_found"
    assert (await held).status == "denied"
    assert [event.decision for event in bench.events(ApprovalResolved)] == ["deny"]


@pytest.mark.parametrize("who", ["engine", "client:storefront", "session:child", "", "person"])
async def test_who_makes_calls_never_decides_them(open_bench: OpenBench, who: str) -> None:
    source = ScriptedSource(tools=(tool("send"),))
    bench = await open_bench(make_plan(mcp_grant(default="require_approval")), source)
    held = asyncio.create_task(bench.session.call("mcp__orders__send", "{}", "engine"))
    call_id = (await bench.until(ApprovalRequested)).call_id
    with pytest.raises(ExecutorError) as refused:
        bench.session.decide(call_id, ALLOW, who)
    assert refused.value.code == "forbidden"
    assert not held.done()
    bench.session.cancel(call_id, PERSON)
    assert (await held).status == "cancelled"


async def test_an_expired_approval_is_a_denial(open_bench: OpenBench) -> None:
    source = ScriptedSource(tools=(tool("send"),))
    plan = make_plan(mcp_grant(default="require_approval"), expires_seconds=1)
    bench = await open_bench(plan, source)
    outcome = await bench.session.call("mcp__orders__send", "{}", "engine")
    assert (outcome.status, outcome.reason) == ("denied", "expired")
    assert outcome.text == "nobody decided this call in time"
    (resolved,) = bench.events(ApprovalResolved)
    assert (resolved.decision, resolved.resolved_by) == ("deny", "expiry")
    assert source.calls == []


async def test_an_approved_call_is_bound_to_the_credential_that_was_shown(
    open_bench: OpenBench,
) -> None:
    source = ScriptedSource(tools=(tool("send"),), credential_id="cred_1")
    bench = await open_bench(make_plan(mcp_grant(default="require_approval")), source)
    held = asyncio.create_task(bench.session.call("mcp__orders__send", "{}", "engine"))
    requested = await bench.until(ApprovalRequested)
    assert requested.credential == "cred_1"
    bench.session.decide(requested.call_id, ALLOW, PERSON)
    await held
    approved = source.calls[0].approved
    assert approved is not None
    assert approved.credential == "cred_1"


async def test_a_call_cancelled_while_it_runs_is_cancelled_at_its_source(
    open_bench: OpenBench,
) -> None:
    source = ScriptedSource(tools=(tool("send"),), fault="hangs")
    bench = await open_bench(make_plan(mcp_grant()), source)
    running = asyncio.create_task(bench.session.call("mcp__orders__send", "{}", "engine"))
    await source.entered.wait()
    bench.session.cancel(source.calls[0].call_id, PERSON)
    outcome = await running
    assert (outcome.status, outcome.reason) == ("cancelled", "may_have_run")
    assert source.cancelled == 1
    assert bench.types()[-2:] == ["cancel_requested", "call_ended"]


async def test_ending_a_session_cancels_its_calls_and_closes_its_log(
    open_bench: OpenBench,
) -> None:
    source = ScriptedSource(tools=(tool("send"),), fault="hangs")
    bench = await open_bench(make_plan(mcp_grant()), source)
    running = asyncio.create_task(bench.session.call("mcp__orders__send", "{}", "engine"))
    await source.entered.wait()
    await bench.session.end(cancelled=True, requested_by=PERSON)
    assert (await running).status == "cancelled"
    assert source.closed == 1
    assert bench.types()[-1] == "session_ended"
    with pytest.raises(ExecutorError, match="has ended"):
        await bench.session.call("mcp__orders__send", "{}", "engine")


async def test_whoever_waits_may_go_away_and_the_call_still_has_its_outcome(
    open_bench: OpenBench,
) -> None:
    source = ScriptedSource(tools=(tool("send"),))
    bench = await open_bench(make_plan(mcp_grant(default="require_approval")), source)
    waiting = asyncio.create_task(bench.session.call("mcp__orders__send", "{}", "engine"))
    requested = await bench.until(ApprovalRequested)
    waiting.cancel()
    bench.session.decide(requested.call_id, ALLOW, PERSON)
    assert (await bench.until(CallEnded)).outcome.status == "succeeded"


async def test_a_source_that_breaks_ends_as_unknown_and_its_text_is_in_no_log(
    open_bench: OpenBench, caplog: pytest.LogCaptureFixture
) -> None:
    source = ScriptedSource(tools=(tool("send"),), fault="breaks")
    bench = await open_bench(make_plan(mcp_grant()), source)
    outcome = await bench.session.call("mcp__orders__send", "{}", "engine")
    assert (outcome.status, outcome.reason) == ("unknown", "internal")
    everything = "".join(str(record) for record in bench.store.read("session_test"))
    assert "a text that no log should hold" not in everything + caplog.text


async def test_a_source_that_could_not_be_reached_ran_nothing(open_bench: OpenBench) -> None:
    source = ScriptedSource(tools=(tool("send"),), fault="unavailable_in_call")
    bench = await open_bench(make_plan(mcp_grant()), source)
    outcome = await bench.session.call("mcp__orders__send", "{}", "engine")
    assert outcome.status == "source_unavailable"


async def test_a_result_over_the_cap_is_cut_with_a_marker(open_bench: OpenBench) -> None:
    big = Outcome(
        status="succeeded",
        content=(TextBlock(text="é" * 300_000), TextBlock(text="more")),
        structured={"big": "x" * 300_000},
    )
    source = ScriptedSource(tools=(tool("send"),), answer=big)
    bench = await open_bench(make_plan(mcp_grant()), source)
    outcome = await bench.session.call("mcp__orders__send", "{}", "engine")
    assert "bytes more]" in outcome.text
    assert "[left out: structured content" in outcome.text
    assert outcome.structured is None
    assert len(outcome.text.encode()) < 263_000
    assert outcome.cut_bytes == 600_000 + 4 - 262_144 + len(json.dumps(big.structured)) - 1


async def test_text_with_a_lone_surrogate_is_logged_with_a_replacement(
    open_bench: OpenBench,
) -> None:
    source = ScriptedSource(tools=(tool("send"),), answer=ended("succeeded", None, "a\ud800b"))
    bench = await open_bench(make_plan(mcp_grant()), source)
    assert (await bench.session.call("mcp__orders__send", "{}", "engine")).text == "a?b"


async def test_every_call_has_exactly_one_outcome_and_seq_has_no_gaps(
    open_bench: OpenBench,
) -> None:
    source = ScriptedSource(tools=(tool("send"), tool("drop")))
    bench = await open_bench(make_plan(mcp_grant(drop="deny")), source)
    names = ["mcp__orders__send", "mcp__orders__drop", "mcp__orders__none"] * 10
    await asyncio.gather(*(bench.session.call(name, "{}", "engine") for name in names))
    requested = [event.call_id for event in bench.events(CallRequested)]
    assert sorted(requested) == sorted(event.call_id for event in bench.events(CallEnded))
    records = bench.store.read("session_test")
    assert all(b.seq == a.seq + 1 for a, b in pairwise(records))
