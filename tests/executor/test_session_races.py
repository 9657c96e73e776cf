"""What happens at once or too late in a session: decisions, cancels, ends, and late followers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import NoReturn

import pytest
from session_bench import PERSON, OpenBench, make_plan, mcp_grant

from subako_ray.executor.approvals import Approvals, Decided, Held
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.event_store import EventStore
from subako_ray.executor.session import ClientRegistration
from subako_ray.executor.session_log import SessionLog
from subako_ray.executor.source import SourceCall
from subako_ray.executor.sources.client import ClientResult
from subako_ray.schema.events import (
    ApprovalRequested,
    ApprovalResolved,
    CallEnded,
    CallRequested,
    ClientToolDescriptor,
    ClientToolDispatched,
)
from subako_ray.schema.outcome import Outcome
from subako_ray.testing.scripted_source import ScriptedSource, tool

ALLOW = Decided(decision="allow")
SHOP = ClientRegistration(
    name="shop",
    tools=(ClientToolDescriptor(name="show", description="", parameters={"type": "object"}),),
)


async def test_a_decision_in_the_moment_of_expiry_stands_alone(store: EventStore) -> None:
    log = SessionLog(store, "session_test")
    approvals = Approvals(log, 1)
    held = Held(
        call_id="call_1",
        server="mcp:orders",
        tool="send",
        arguments={},
        args_hash="",
        tool_version="",
        credential=None,
    )
    loop = asyncio.get_running_loop()
    holding = asyncio.create_task(approvals.hold(held))
    await asyncio.sleep(0)
    # Both in one turn of the loop: the decision first, then the timer, as a busy loop would.
    loop.call_at(loop.time() + 0.99, approvals.decide, "call_1", ALLOW, PERSON)
    loop.call_at(loop.time() + 0.99, _stall, 0.1)
    assert (await holding).decision == "allow"
    resolved = [r.event for r in store.read("session_test") if r.event.type == "approval_resolved"]
    assert [(e.decision, e.resolved_by) for e in resolved if isinstance(e, ApprovalResolved)] == [
        ("allow", PERSON)
    ]


def _stall(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_cancel_beats_a_decision_that_comes_after_it(open_bench: OpenBench) -> None:
    source = ScriptedSource(tools=(tool("send"),))
    bench = await open_bench(make_plan(mcp_grant(default="require_approval")), source)
    held = asyncio.create_task(bench.session.call("mcp__orders__send", "{}", "engine"))
    call_id = (await bench.until(ApprovalRequested)).call_id
    bench.session.cancel(call_id, PERSON)
    bench.session.cancel(call_id, PERSON)
    with pytest.raises(ExecutorError):
        bench.session.decide(call_id, ALLOW, PERSON)
    assert (await held).status == "cancelled"
    assert bench.events(ApprovalResolved) == []
    assert source.calls == []
    with pytest.raises(ExecutorError) as gone:
        bench.session.cancel(call_id, PERSON)
    assert gone.value.code == "not_found"


async def test_a_call_that_comes_with_the_end_has_its_outcome(open_bench: OpenBench) -> None:
    source = ScriptedSource(tools=(tool("send"),), fault="hangs")
    bench = await open_bench(make_plan(mcp_grant()), source)
    calling = asyncio.create_task(bench.session.call("mcp__orders__send", "{}", "engine"))
    ending = asyncio.create_task(bench.session.end(cancelled=True, requested_by=PERSON))
    (outcome, _) = await asyncio.gather(calling, ending)
    assert outcome.status == "cancelled"
    assert [len(bench.events(CallRequested)), len(bench.events(CallEnded))] == [1, 1]
    assert bench.types()[-1] == "session_ended"


async def test_ending_twice_at_once_waits_for_the_end_and_logs_it_once(
    open_bench: OpenBench,
) -> None:
    source = ScriptedSource(tools=(tool("send"),), fault="hangs")
    bench = await open_bench(make_plan(mcp_grant()), source)
    calling = asyncio.create_task(bench.session.call("mcp__orders__send", "{}", "engine"))
    await source.entered.wait()
    first = asyncio.create_task(bench.session.end(cancelled=True, requested_by=PERSON))
    await asyncio.sleep(0)
    await bench.session.end(cancelled=False, requested_by=PERSON)
    assert bench.types()[-1] == "session_ended"
    await first
    await calling
    assert bench.types().count("session_ended") == 1


class Stubborn(ScriptedSource):
    """A source that takes no notice of the first cancel."""

    async def call(self, call: SourceCall) -> Outcome:
        """Never returns, whatever the pipeline asks of it."""
        self.calls.append(call)
        self.entered.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        self.cancelled += 1
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_source_that_ignores_a_cancel_cannot_keep_the_log_open(
    open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subako_ray.executor.pipeline.CANCEL_SECONDS", 0.05)
    source = Stubborn(tools=(tool("send"),))
    bench = await open_bench(make_plan(mcp_grant()), source)
    calling = asyncio.create_task(bench.session.call("mcp__orders__send", "{}", "engine"))
    await source.entered.wait()
    await bench.session.end(cancelled=True, requested_by=PERSON)
    assert (await calling).reason == "may_have_run"
    assert source.cancelled == 1
    assert bench.types()[-2:] == ["call_ended", "session_ended"]


async def test_nothing_is_logged_after_the_end(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan(), clients=(SHOP,))
    (client_id,) = bench.client_ids
    await bench.session.end(cancelled=False, requested_by=PERSON)
    with pytest.raises(ExecutorError) as joined:
        await bench.session.register(SHOP)
    with pytest.raises(ExecutorError) as left:
        await bench.session.leave(client_id)
    assert joined.value.code == left.value.code == "precondition_failed"
    assert bench.types()[-1] == "session_ended"


@pytest.mark.parametrize("after", [0, "last", 1_000_000])
async def test_a_follower_that_comes_after_the_end_is_not_kept(
    open_bench: OpenBench, after: int | str
) -> None:
    bench = await open_bench(make_plan())
    await bench.session.end(cancelled=False, requested_by=PERSON)
    last = len(bench.types())
    async with asyncio.timeout(5):
        batches = [b async for b in bench.session.follow(last if after == "last" else int(after))]
    assert [r.seq for b in batches for r in b] == (list(range(1, last + 1)) if after == 0 else [])


async def test_a_waiting_follower_past_the_end_is_let_go_when_the_session_ends(
    open_bench: OpenBench,
) -> None:
    bench = await open_bench(make_plan())

    async def follow() -> list[int]:
        return [r.seq async for batch in bench.session.follow(1_000_000) for r in batch]

    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    await bench.session.end(cancelled=False, requested_by=PERSON)
    async with asyncio.timeout(5):
        assert await following == []


async def test_a_call_is_taken_by_one_of_two_that_serve_the_same_client(
    open_bench: OpenBench,
) -> None:
    bench = await open_bench(make_plan(), clients=(SHOP,))
    (client_id,) = bench.client_ids
    calling = asyncio.create_task(bench.session.call("client__shop__show", "{}", "engine"))
    call_id = (await bench.until(ClientToolDispatched)).call_id
    bench.session.ack(client_id, call_id)
    with pytest.raises(ExecutorError) as second:
        bench.session.ack(client_id, call_id)
    assert second.value.code == "conflict"
    bench.session.result(client_id, call_id, ClientResult(text="shown"))
    with pytest.raises(ExecutorError):
        bench.session.result(client_id, call_id, ClientResult(text="shown twice"))
    assert (await calling).text == "shown"


async def test_a_client_that_cannot_be_logged_does_not_join(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan())
    deep: dict[str, object] = {}
    for _ in range(300):
        deep = {"default": deep}
    for parameters, description in (({"default": float("nan")}, ""), (deep, ""), ({}, "\ud800")):
        odd = ClientToolDescriptor(name="show", description=description, parameters=parameters)
        with pytest.raises(ExecutorError) as refused:
            await bench.session.register(ClientRegistration(name="shop", tools=(odd,)))
        assert refused.value.code == "invalid_request"
    assert (await bench.session.register(SHOP)).name == "shop"


async def test_five_hundred_calls_at_once_each_have_one_outcome(open_bench: OpenBench) -> None:
    source = ScriptedSource(tools=(tool("send"),))
    bench = await open_bench(make_plan(mcp_grant()), source)
    outcomes = await asyncio.gather(
        *(bench.session.call("mcp__orders__send", f'{{"n":{n}}}', "engine") for n in range(500))
    )
    assert {outcome.status for outcome in outcomes} == {"succeeded"}
    assert [len(source.calls), len({call.call_id for call in source.calls})] == [500, 500]


async def test_a_source_that_breaks_while_it_is_asked_takes_no_other_down(
    open_bench: OpenBench,
) -> None:
    class Breaking(ScriptedSource):
        async def open(self) -> NoReturn:
            raise KeyError("a text that no log should hold")

    good = ScriptedSource(name="good", tools=(tool("send"),))
    bench = await open_bench(make_plan(mcp_grant(), mcp_grant("good")), Breaking(), good)
    assert (await bench.session.call("mcp__good__send", "{}", "engine")).status == "succeeded"
    outcome = await bench.session.call("mcp__orders__send", "{}", "engine")
    assert outcome.status == "source_unavailable"
    assert "no log should hold" not in outcome.text


async def test_a_tool_whose_schema_has_no_canonical_form_is_left_out_alone(
    open_bench: OpenBench,
) -> None:
    source = ScriptedSource(tools=(tool("send"), tool("odd", a={"default": float("nan")})))
    bench = await open_bench(make_plan(mcp_grant()), source)
    assert [str(entry.name) for entry in bench.session.offered()] == ["mcp__orders__send"]
    (left_out,) = bench.session.catalogue().left_out
    assert left_out.tool == "odd"
