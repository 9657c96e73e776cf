"""What the host makes of a program's output. The program is played by bytes in memory."""

from __future__ import annotations

import asyncio
import json
import time
from typing import cast

import pytest

from subako_ray.sandbox.mcp_dialogue import Dialogue, RefusedError, UnansweredProbeError
from subako_ray.sandbox.stdio_channel import (
    BadOutputError,
    EndOfOutputError,
    Error,
    OutputLimitError,
    Result,
    StdioChannel,
)

LIMIT = 1024 * 1024


class Input:
    """The program's standard input: keeps what it was sent."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return False

    def messages(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.sent.splitlines()]


def channel(*output: bytes, ends: bool = True) -> tuple[StdioChannel, Input]:
    reader = asyncio.StreamReader()
    for piece in output:
        reader.feed_data(piece)
    if ends:
        reader.feed_eof()
    program = Input()
    return (
        StdioChannel(reader, cast("asyncio.StreamWriter", program), output_bytes=LIMIT),
        program,
    )


def reply(value: object, identity: object = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identity, "result": value}).encode() + b"\n"


async def test_a_reply_is_read_whatever_pieces_it_comes_in() -> None:
    text = reply({"a": "é", "n": 2**80})
    for size in (1, 7, len(text)):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        talk, program = channel(*pieces)
        assert await talk.request("m", b'{"big":' + str(10**60).encode() + b"}") == Result(
            value={"a": "é", "n": 2**80}
        )
        assert program.sent == (
            b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"big":'
            + str(10**60).encode()
            + b"}}\n"
        )


async def test_a_reply_without_its_newline_is_a_reply() -> None:
    talk, _ = channel(reply({"a": 1}).rstrip())
    assert await talk.request("m", None) == Result(value={"a": 1})


async def test_blank_lines_and_notifications_are_passed_over() -> None:
    talk, _ = channel(b"\n \r\n", b'{"jsonrpc":"2.0","method":"notifications/x"}\n', reply({}))
    assert await talk.request("m", None) == Result(value={})


async def test_a_reply_may_echo_the_id_as_a_string() -> None:
    talk, _ = channel(reply({}, "1"))
    assert await talk.request("m", None) == Result(value={})


async def test_an_error_is_an_answer() -> None:
    talk, _ = channel(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}\n')
    assert await talk.request("m", None) == Error(code=-32602, message="no")


async def test_what_a_program_asks_is_refused_and_a_ping_is_answered() -> None:
    talk, program = channel(
        b'{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage","params":{}}\n',
        b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n',
        reply({}),
    )
    await talk.request("m", None)
    _, refused, pong = program.messages()
    assert (refused["id"], cast("dict[str, object]", refused["error"])["code"]) == ("s1", -32601)
    assert (pong["id"], pong["result"]) == (2, {})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"Starting server...", "not JSON"),
        (b"y", "not JSON"),
        (b"{", "not JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}', "not UTF-8"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":"\\ud800"}}', "surrogate"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}', "`NaN` is not JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":1e999}}', "too large"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":' + b"1" * 5000 + b"}}", "not JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}', "stands twice"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":' + b"[" * 300 + b"]" * 300 + b"}}", "too deep"),
        (b"[" * 200_000, "too deep"),
        (b"[" + reply({}).strip() + b"]", "not a JSON-RPC message"),
        (b"null", "not a JSON-RPC message"),
        (b'{"id":1,"result":{}}', "not a JSON-RPC message"),
        (b'{"jsonrpc":"2.0","id":2,"result":{}}', "a request that was not made"),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}', "not made"),
        (b'{"jsonrpc":"2.0","id":1}', "neither a result nor an error"),
        (b'{"jsonrpc":"2.0","id":1,"result":[1]}', "neither a result nor an error"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"y"}}', "neither a result"),
    ],
)
async def test_rubbish_ends_the_conversation_at_once(line: bytes, reason: str) -> None:
    # The output stays open: an answer that is waited for would never come.
    talk, _ = channel(line + b"\n", ends=False)
    with pytest.raises(BadOutputError, match=reason):
        await asyncio.wait_for(talk.request("m", None), 5)


async def test_nesting_that_later_code_can_take_is_read() -> None:
    deep = b"[" * 200 + b"]" * 200
    talk, _ = channel(b'{"jsonrpc":"2.0","id":1,"result":{"a":' + deep + b"}}\n")
    assert isinstance(await talk.request("m", None), Result)


async def test_many_shallow_lists_are_not_deep() -> None:
    talk, _ = channel(reply({"a": [[]] * 10_000}))
    assert isinstance(await talk.request("m", None), Result)


@pytest.mark.parametrize("output", [b"", b'{"jsonrpc":"2.0","id":1,"resu', b"half a line"])
async def test_an_output_that_ends_says_so(output: bytes) -> None:
    talk, _ = channel(output)
    with pytest.raises(EndOfOutputError):
        await talk.request("m", None)


async def test_a_line_without_end_is_cut_off_at_the_limit_in_linear_time() -> None:
    talk, _ = channel(*[b"\0" * 4096] * (2 * LIMIT // 4096), ends=False)
    began = time.monotonic()
    with pytest.raises(OutputLimitError):
        await asyncio.wait_for(talk.request("m", None), 5)
    assert time.monotonic() - began < 2


async def test_notifications_without_end_are_cut_off_at_the_limit() -> None:
    line = b'{"jsonrpc":"2.0","method":"notifications/x"}\n'
    talk, _ = channel(line * (LIMIT // len(line) + 10_000), ends=False)
    with pytest.raises(OutputLimitError):
        await asyncio.wait_for(talk.request("m", None), 10)


def dialogue(
    version: str | None, *output: bytes, ends: bool = True, timeout_seconds: float = 30
) -> tuple[Dialogue, Input]:
    talk, program = channel(*output, ends=ends)
    return Dialogue(talk, version, timeout_seconds=timeout_seconds), program


async def test_a_modern_call_is_one_message() -> None:
    talk, program = dialogue("2026-07-28", reply({"content": []}))
    assert await talk.open() == "2026-07-28"
    before = talk.called
    assert await talk.call_tool("add", b'{"a":1.50}') == {"content": []}
    assert (before, talk.called) == (False, True)
    (message,) = program.messages()
    params = cast("dict[str, dict[str, object]]", message["params"])
    assert message["method"] == "tools/call"
    assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert params["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {}
    assert b'"arguments":{"a":1.50}}' in program.sent


async def test_an_older_program_is_met_with_a_handshake() -> None:
    talk, program = dialogue(
        "2024-11-05", reply({"protocolVersion": "2024-11-05"}), reply({"content": []}, 2)
    )
    await talk.open()
    await talk.call_tool("add", b"{}")
    assert [message["method"] for message in program.messages()] == [
        "initialize",
        "notifications/initialized",
        "tools/call",
    ]
    assert program.messages()[0]["params"] | {"clientInfo": None} == {  # type: ignore[operator]
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": None,
    }
    assert program.messages()[2]["params"] == {"name": "add", "arguments": {}}


async def test_an_unknown_program_that_can_discover_is_modern() -> None:
    talk, program = dialogue(None, reply({"supportedVersions": ["2026-07-28"]}))
    assert await talk.open() == "2026-07-28"
    assert [message["method"] for message in program.messages()] == ["server/discover"]


async def test_an_unknown_program_that_refuses_to_discover_gets_a_handshake() -> None:
    talk, program = dialogue(
        None,
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}\n',
        reply({"protocolVersion": "2025-06-18"}, 2),
    )
    assert await talk.open() == "2025-06-18"
    assert [message["method"] for message in program.messages()][:2] == [
        "server/discover",
        "initialize",
    ]


@pytest.mark.parametrize("ends", [True, False])
async def test_a_program_that_dies_of_the_probe_or_ignores_it_needs_a_new_start(
    ends: bool,
) -> None:
    talk, _ = dialogue(None, ends=ends, timeout_seconds=0.1)
    with pytest.raises(UnansweredProbeError):
        await asyncio.wait_for(talk.open(), 5)


async def test_a_version_that_nobody_knows_is_bad_output() -> None:
    talk, _ = dialogue("2025-11-25", reply({"protocolVersion": "2023-01-01"}))
    with pytest.raises(BadOutputError, match="a version of MCP"):
        await talk.open()


async def test_a_result_that_is_not_complete_is_bad_output() -> None:
    talk, _ = dialogue("2026-07-28", reply({"resultType": "input_required"}))
    with pytest.raises(BadOutputError, match="not complete"):
        await talk.call_tool("add", b"{}")


async def test_a_refusal_carries_code_and_message() -> None:
    talk, _ = dialogue(
        "2026-07-28", b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}\n'
    )
    with pytest.raises(RefusedError) as refused:
        await talk.call_tool("add", b"{}")
    assert refused.value.error == Error(code=-32602, message="no")


async def test_all_pages_of_tools_are_read() -> None:
    talk, program = dialogue(
        "2026-07-28",
        reply({"tools": [{"name": "a"}], "nextCursor": "p2"}),
        reply({"tools": [{"name": "b"}], "nextCursor": ""}, 2),
    )
    assert await talk.list_tools() == [{"name": "a"}, {"name": "b"}]
    assert cast("dict[str, object]", program.messages()[1]["params"])["cursor"] == "p2"


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ([{"tools": {}}], "without a list of tools"),
        ([{"tools": ["a"]}], "not an object"),
        ([{"tools": [{}] * 1001}], "more than 1000 tools"),
        ([{"tools": [], "nextCursor": "a"}] * 2, "pages without end"),
        ([{"tools": [], "nextCursor": str(n)} for n in range(200)], "pages without end"),
    ],
)
async def test_a_list_that_is_no_list_is_bad_output(
    pages: list[dict[str, object]], reason: str
) -> None:
    replies = [reply(page, n) for n, page in enumerate(pages, start=1)]
    talk, _ = dialogue("2026-07-28", *replies, ends=False)
    with pytest.raises(BadOutputError, match=reason):
        await asyncio.wait_for(talk.list_tools(), 5)
