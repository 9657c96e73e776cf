"""The example's MCP server: a real process, asked over real HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

SERVER = Path(__file__).parents[2] / "examples" / "support" / "orders_server.py"
TOKEN = "a-token-of-the-tests"


@contextmanager
def running_server(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts the server on a free port; yields its process and URL, and ends it."""
    token_file = folder / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(TOKEN)
    with subprocess.Popen(
        [sys.executable, SERVER, "--token-file", token_file, "--port", "0", "--stop-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("orders server ready at "), line
            yield process, line.split()[-1]
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(tmp_path_factory.mktemp("orders")) as (_, url):
        yield url


@pytest.mark.parametrize("authorization", [None, "Bearer", "Bearer wrong", TOKEN])
def test_a_request_without_the_token_is_refused(server_url: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

    response = httpx2.post(server_url, json=request, headers=headers)

    assert response.status_code == 401
    assert "tools" not in response.text


async def test_with_the_token_orders_are_read_and_refunded_once(server_url: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(server_url, http_client=http), cache=None) as client,
    ):
        names = {tool.name for tool in (await client.list_tools()).tools}
        order = await client.call_tool("lookup", {"order_id": "A-1002"})
        whole = {"order_id": "A-1002", "amount": "249.00", "reason": "broken"}
        first = await client.call_tool("refund", whole)
        second = await client.call_tool("refund", whole)

    assert names == {"list_orders", "lookup", "refund", "delete_order"}
    assert order.structured_content is not None
    assert order.structured_content["total"] == "249.00"
    assert not first.is_error
    assert second.is_error


def test_the_server_stops_when_its_standard_input_is_closed(tmp_path: Path) -> None:
    with running_server(tmp_path) as (process, _):
        assert process.stdin is not None
        process.stdin.close()

        assert process.wait(timeout=20) == 0


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    token_file.chmod(0o640)

    done = subprocess.run(
        [sys.executable, SERVER, "--token-file", token_file, "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 3
    assert "chmod 600" in done.stderr
    assert TOKEN not in done.stdout + done.stderr
