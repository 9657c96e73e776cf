"""The stock MCP client drives a package of the kit, in a real jail, in both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types
import pytest
from isolation import isolation
from mcp import Client, MCPError
from mcp.shared.message import SessionMessage

from subako_ray.sandbox.function import FunctionLimits, FunctionRunner, PackageFolder
from subako_ray.sandbox.lease import Jailer, JailLease

WORKSHOP = PackageFolder(
    path=Path(__file__).parent / "packages" / "workshop",
    name="workshop",
    command=("python3", "main.py"),
)


@asynccontextmanager
async def transport(lease: JailLease) -> AsyncIterator[Any]:
    """Carries the client's messages over the jail's pipes."""
    send_read, read = anyio.create_memory_object_stream[Any](0)
    write, receive_write = anyio.create_memory_object_stream[Any](0)

    async def reading() -> None:
        async with send_read:
            while line := await lease.reader.readline():
                message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                await send_read.send(SessionMessage(message))

    async def writing() -> None:
        async with receive_write:
            async for item in receive_write:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                lease.writer.write(text.encode() + b"\n")

    async with anyio.create_task_group() as group:
        group.start_soon(reading)
        group.start_soon(writing)
        yield read, write
        group.cancel_scope.cancel()


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_the_stock_client_lists_calls_and_reads_errors(mode: str) -> None:
    jailer = await Jailer.start(isolation())
    runner = FunctionRunner(jailer)
    lease = await jailer.acquire(runner.spec(WORKSHOP, FunctionLimits()))
    steps: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    try:
        async with Client(transport(lease), mode=mode, read_timeout_seconds=20) as client:
            listed = await client.list_tools()
            assert [tool.name for tool in listed.tools][:2] == ["add", "mirror"]
            assert listed.tools[0].annotations is not None
            assert listed.tools[0].annotations.read_only_hint is True

            added = await client.call_tool("add", {"a": 2, "b": 3})
            assert added.structured_content == {"sum": 5}
            mirrored = await client.call_tool("mirror", {"point": {"x": 1}})
            assert mirrored.structured_content == {"x": -1.0, "y": 0.0}
            refused = await client.call_tool("refuse", {"reason": "not today"})
            assert refused.is_error is True
            counted = await client.call_tool("count", {"to": 2}, progress_callback=on_progress)
            assert counted.is_error is False
            assert steps == [(1, 2, "counting"), (2, 2, "counting")]
            # A call that is given up stops, or the next one would wait behind it.
            with pytest.raises(MCPError, match=r"[Tt]imed out"):
                await client.call_tool("count", {"to": 10**9}, read_timeout_seconds=0.3)
            assert (await client.call_tool("add", {"a": 1})).structured_content == {"sum": 2}
            with pytest.raises(MCPError, match="Unknown tool: nope"):
                await client.call_tool("nope", {})
    finally:
        await lease.release()
        await jailer.aclose()
