"""The MCP source against real servers: its credential, its failures, and where no token appears."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_servers import Fault, OrdersServer, faulty_server, orders_server
from one_credential import CANARY, OneCredential, a_call

from subako_ray.executor.source import Approved, SourceUnavailableError
from subako_ray.executor.sources.mcp import McpSource


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrdersServer]:
    """The example's server."""
    with orders_server(tmp_path_factory.mktemp("orders")) as server:
        yield server


async def test_the_credential_of_the_url_is_attached_to_every_request(
    orders: OrdersServer,
) -> None:
    provider = OneCredential(orders.token)
    source = McpSource("orders", orders.url, provider)
    listing = await source.open()
    assert [tool.name for tool in listing.tools] == [
        "list_orders",
        "lookup",
        "refund",
        "delete_order",
    ]
    asked_before = len(provider.targets)
    outcome = await source.call(a_call("lookup", order_id="A-1001"))
    assert outcome.status == "succeeded"
    assert "shipped" in outcome.text
    assert len(provider.targets) > asked_before
    assert set(provider.targets) == {orders.url}
    await source.close()


async def test_a_rotated_token_is_used_at_the_next_call(orders: OrdersServer) -> None:
    provider = OneCredential(orders.token)
    source = McpSource("orders", orders.url, provider)
    await source.open()
    provider.token = "another"
    refused = await source.call(a_call("lookup", order_id="A-1001"))
    assert (refused.status, refused.reason) == ("source_unavailable", "refused")
    provider.token = orders.token
    assert (await source.call(a_call("lookup", order_id="A-1001"))).status == "succeeded"
    await source.close()


async def test_c5_without_a_credential_the_error_says_so(orders: OrdersServer) -> None:
    source = McpSource("orders", orders.url, OneCredential(None))
    with pytest.raises(SourceUnavailableError, match="no credential for it: no vault"):
        await source.open()
    await source.close()


async def test_a_call_approved_for_one_credential_is_not_sent_with_another(
    orders: OrdersServer,
) -> None:
    provider = OneCredential(orders.token)
    source = McpSource("orders", orders.url, provider)
    await source.open()
    for approved in (Approved(credential="cred_2"), Approved(credential=None)):
        outcome = await source.call(a_call("delete_order", approved, order_id="A-1003"))
        assert (outcome.status, outcome.reason) == ("denied", "credential_changed")
    same = await source.call(a_call("lookup", Approved(credential="cred_1"), order_id="A-1003"))
    assert same.status == "succeeded"
    await source.close()


async def test_a_tools_own_failure_is_text_for_the_model(orders: OrdersServer) -> None:
    source = McpSource("orders", orders.url, OneCredential(orders.token))
    await source.open()
    outcome = await source.call(a_call("lookup", order_id="none"))
    assert outcome.status == "tool_failed"
    assert outcome.text.endswith("there is no order `none`")
    await source.close()


@pytest.mark.parametrize("fault", ["401", "403", "429", "500", "garbage", "close"])
async def test_c4_a_server_that_echoes_its_headers_leaks_no_token(
    fault: Fault, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    said = []
    with faulty_server(fault) as server:
        source = McpSource("orders", server.url, OneCredential(CANARY))
        with pytest.raises(SourceUnavailableError) as unavailable:
            await source.open()
        said += [str(unavailable.value), repr(unavailable.value.__cause__)]
        try:
            said.append(repr(await source.call(a_call("lookup"))))
        except SourceUnavailableError as error:
            said.append(str(error))
        await source.close()
        assert f"Bearer {CANARY}" in server.authorizations, "the fault was not reached"
    captured = capfd.readouterr()
    everything = "\n".join([*said, caplog.text, captured.out, captured.err])
    assert "orders" in everything
    assert CANARY not in everything


async def test_c4_a_refused_connection_names_the_server_and_no_token() -> None:
    with faulty_server("500") as server:
        url = server.url
    source = McpSource("orders", url, OneCredential(CANARY))
    with pytest.raises(SourceUnavailableError, match="`orders` cannot be reached") as refused:
        await source.open()
    assert CANARY not in str(refused.value)
    await source.close()


async def test_c3_a_redirect_elsewhere_gets_no_credential() -> None:
    with faulty_server("401") as elsewhere, faulty_server("redirect", elsewhere.url) as server:
        source = McpSource("orders", server.url, OneCredential(CANARY))
        with pytest.raises(SourceUnavailableError):
            await source.open()
        await source.close()
        assert f"Bearer {CANARY}" in server.authorizations
        assert [each for each in elsewhere.authorizations if each] == []


async def test_c3_a_redirect_to_another_path_gets_no_credential() -> None:
    with faulty_server("redirect", "/elsewhere") as server:
        source = McpSource("orders", server.url, OneCredential(CANARY))
        with pytest.raises(SourceUnavailableError):
            await source.open()
        await source.close()
        assert None in server.authorizations, "the redirect was not followed"


async def test_a_token_that_comes_back_in_a_result_is_removed(tmp_path: Path) -> None:
    with orders_server(tmp_path) as server:
        source = McpSource("orders", server.url, OneCredential(server.token))
        await source.open()
        outcome = await source.call(a_call("lookup", order_id=f"x{server.token}y"))
        await source.close()
    assert outcome.text.endswith("there is no order `x[credential removed]y`")
