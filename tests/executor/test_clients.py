"""Clients of a session: registration, dispatch, acks, answers, and what their absence does."""

from __future__ import annotations

import asyncio

import pytest
from session_bench import OpenBench, make_plan

from subako_ray.executor.client_tools import Client, ClientToolError
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.session import ClientRegistration
from subako_ray.executor.sources.client import ClientDeadlines, ClientResult
from subako_ray.schema.events import (
    CallRequested,
    ClientRegistered,
    ClientToolAcked,
    ClientToolDescriptor,
    ClientToolDispatched,
    ClientToolFailed,
)

SHORT = ClientDeadlines(ack_seconds=0.05, result_seconds=0.05)


def registration(name: str = "shop", *tools: str) -> ClientRegistration:
    """A client with these tools."""
    return ClientRegistration(
        name=name,
        tools=tuple(
            ClientToolDescriptor(name=each, description="", parameters={"type": "object"})
            for each in tools or ("show",)
        ),
    )


async def test_a_call_is_dispatched_acked_and_answered(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan(), clients=(registration(),))
    (client_id,) = bench.client_ids
    calling = asyncio.create_task(bench.session.call("client__shop__show", '{"a":1}', "engine"))
    dispatched = await bench.until(ClientToolDispatched)
    assert (dispatched.client_id, dispatched.tool) == (client_id, "show")
    assert dispatched.arguments == {"a": 1}
    bench.session.ack(client_id, dispatched.call_id)
    bench.session.result(client_id, dispatched.call_id, ClientResult(text="shown"))
    assert (await calling).text == "shown"
    assert len(bench.events(ClientToolAcked)) == 1


async def test_an_error_answer_is_still_an_answer(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan(), clients=(registration(),))
    calling = asyncio.create_task(bench.session.call("client__shop__show", "{}", "engine"))
    dispatched = await bench.until(ClientToolDispatched)
    bench.session.result(
        bench.client_ids[0], dispatched.call_id, ClientResult(text="no", is_error=True)
    )
    outcome = await calling
    assert (outcome.status, outcome.text) == ("tool_failed", "no")


async def test_a6_a_client_that_does_not_take_the_call_ends_it_after_a_bounded_wait(
    open_bench: OpenBench,
) -> None:
    bench = await open_bench(make_plan(), clients=(registration(),), deadlines=SHORT)
    outcome = await bench.session.call("client__shop__show", "{}", "engine")
    assert (outcome.status, outcome.reason) == ("source_unavailable", "ack_timeout")
    assert [event.reason for event in bench.events(ClientToolFailed)] == ["ack_timeout"]


async def test_a6_a_client_that_took_the_call_and_is_gone_ends_it_once(
    open_bench: OpenBench,
) -> None:
    bench = await open_bench(make_plan(), clients=(registration(),))
    (client_id,) = bench.client_ids
    calling = asyncio.create_task(bench.session.call("client__shop__show", "{}", "engine"))
    dispatched = await bench.until(ClientToolDispatched)
    bench.session.ack(client_id, dispatched.call_id)
    await bench.session.leave(client_id)
    outcome = await calling
    assert (outcome.status, outcome.reason) == ("unknown", "client_gone")
    with pytest.raises(ExecutorError):
        bench.session.result(client_id, dispatched.call_id, ClientResult(text="late"))


async def test_a6_a_newcomer_under_a_spent_name_gets_a_counter(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan(), clients=(registration(), registration()))
    await bench.session.leave(bench.client_ids[0])
    third = await bench.session.register(registration())
    names = [event.name for event in bench.events(ClientRegistered)]
    assert names == ["shop", "shop-2", "shop-3"]
    assert third.name == "shop-3"
    gone = await bench.session.call("client__shop__show", "{}", "engine")
    assert gone.reason == "unknown_tool"


async def test_a_counter_keeps_a_long_name_within_its_limit(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan(), clients=(registration("a" * 32), registration("a" * 32)))
    names = [event.name for event in bench.events(ClientRegistered)]
    assert names == ["a" * 32, "a" * 30 + "-2"]


@pytest.mark.parametrize("name", ["x__y", "Shop", "", "a" * 33, "shop\n", "parent", "sh.op"])
async def test_n3_a_client_name_with_the_separator_or_worse_is_refused(
    open_bench: OpenBench, name: str
) -> None:
    bench = await open_bench(make_plan())
    with pytest.raises(ExecutorError) as refused:
        await bench.session.register(registration(name))
    assert refused.value.code == "invalid_request"
    assert bench.events(ClientRegistered) == []


@pytest.mark.parametrize("tool", ["a b", "", "x" * 65, "a.b", "a\n"])
async def test_a_client_tool_with_a_bad_name_is_refused(open_bench: OpenBench, tool: str) -> None:
    bench = await open_bench(make_plan())
    with pytest.raises(ExecutorError, match="name that is not allowed"):
        await bench.session.register(registration("shop", "good", tool))


async def test_too_many_or_equal_tools_are_refused(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan())
    with pytest.raises(ExecutorError, match="more than 64"):
        await bench.session.register(registration("shop", *(f"t{i}" for i in range(65))))
    with pytest.raises(ExecutorError, match="two tools `t`"):
        await bench.session.register(registration("shop", "t", "t"))


async def test_another_client_cannot_answer(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan(), clients=(registration(), registration("other")))
    calling = asyncio.create_task(bench.session.call("client__shop__show", "{}", "engine"))
    dispatched = await bench.until(ClientToolDispatched)
    with pytest.raises(ExecutorError):
        bench.session.result(bench.client_ids[1], dispatched.call_id, ClientResult(text="forged"))
    bench.session.result(bench.client_ids[0], dispatched.call_id, ClientResult(text="real"))
    assert (await calling).text == "real"


async def test_an_answer_that_is_too_long_is_refused_and_the_call_waits_on(
    open_bench: OpenBench,
) -> None:
    bench = await open_bench(make_plan(), clients=(registration(),))
    calling = asyncio.create_task(bench.session.call("client__shop__show", "{}", "engine"))
    dispatched = await bench.until(ClientToolDispatched)
    with pytest.raises(ExecutorError, match="65536"):
        bench.session.result(
            bench.client_ids[0], dispatched.call_id, ClientResult(text="x" * 65_537)
        )
    bench.session.result(bench.client_ids[0], dispatched.call_id, ClientResult(text="short"))
    assert (await calling).text == "short"


async def test_a_cancelled_call_tells_the_log_that_its_run_is_gone(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan(), clients=(registration(),))
    calling = asyncio.create_task(bench.session.call("client__shop__show", "{}", "engine"))
    await bench.until(ClientToolDispatched)
    bench.session.cancel(bench.events(CallRequested)[0].call_id, "user:ada")
    assert (await calling).status == "cancelled"
    assert [event.reason for event in bench.events(ClientToolFailed)] == ["run_gone"]


async def test_an_application_function_becomes_a_tool_and_its_exception_an_error() -> None:
    client = Client("shop")

    @client.tool(description="Adds", parameters={"type": "object"})
    def add(arguments: dict[str, int]) -> str:
        return str(arguments["a"] + 1)

    @client.tool(description="Fails", parameters={"type": "object"}, name="fail")
    async def failing(arguments: dict[str, int]) -> str:
        raise ClientToolError("try later")

    assert [each.name for each in client.descriptors] == ["add", "fail"]
    assert await client.run("add", {"a": 1}) == ClientResult(text="2")
    assert await client.run("fail", {}) == ClientResult(text="try later", is_error=True)
    assert (await client.run("add", {})).is_error
    assert (await client.run("none", {})).is_error
