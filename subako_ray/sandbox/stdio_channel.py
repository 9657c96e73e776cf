"""JSON-RPC over a jailed program's pipes, for a program that may write anything at all.

One message is one line (MCP, stdio transport). Framing is linear in what is read, the number of
bytes read in one conversation is capped, and whatever is not exactly one JSON-RPC message ends
the conversation at once: nothing is skipped over, so nothing is waited for that cannot come.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

CHUNK_BYTES = 256 * 1024
DEPTH = 256
"""Deepest nesting read, so that later code may recurse over a reply."""

METHOD_NOT_FOUND = -32601


class BadOutputError(Exception):
    """The program wrote something that is not the message it owes."""


class EndOfOutputError(Exception):
    """The program closed its output, or died, before it answered."""


class OutputLimitError(Exception):
    """The program wrote more than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer to a request."""

    value: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """A JSON-RPC error as the answer to a request."""

    code: int
    message: str


class StdioChannel:
    """One conversation with a program, one request at a time."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, output_bytes: int
    ) -> None:
        """Takes the program's pipes.

        Args:
            reader: the program's standard output.
            writer: the program's standard input.
            output_bytes: the most that is read of the program in this conversation.
        """
        self._reader = reader
        self._writer = writer
        self._output_bytes = output_bytes
        self._lines = self._read_lines()
        self._last_id = 0

    async def request(self, method: str, params: bytes | None) -> Result | Error:
        """Sends a request and reads until its answer.

        Args:
            method: the method's name.
            params: its parameters as JSON text without a newline, sent verbatim.

        Raises:
            BadOutputError: when the program writes something that is no message.
            EndOfOutputError: when its output ends.
            OutputLimitError: when it writes too much.
        """
        self._last_id += 1
        self._send(method, params, f'"id":{self._last_id},'.encode())
        async for line in self._lines:
            answer = self._take(line)
            if answer is not None:
                return answer
        raise EndOfOutputError

    def notify(self, method: str) -> None:
        """Sends a notification without parameters."""
        self._send(method, None, b"")

    def _send(self, method: str, params: bytes | None, identity: bytes) -> None:
        # Not drained: what we send is small, and a program that reads nothing while it floods its
        # output must be read on, or both sides wait.
        tail = b"" if params is None else b',"params":' + params
        name = json.dumps(method).encode()
        self._write(b'{"jsonrpc":"2.0",' + identity + b'"method":' + name + tail + b"}\n")

    def _write(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line)

    def _take(self, line: bytes) -> Result | Error | None:
        if not line.strip():
            return None
        message = parse_line(line)
        if "method" in message:
            self._answer_program(message)
            return None
        if str(message.get("id")) != str(self._last_id):
            raise BadOutputError("answered a request that was not made")
        match message:
            case {"result": dict(value)}:
                return Result(value=value)
            case {"error": {"code": int(code), "message": str(text)}}:
                return Error(code=code, message=text)
            case _:
                raise BadOutputError("answered with neither a result nor an error")

    def _answer_program(self, message: dict[str, object]) -> None:
        """Answers what a program asks of its client: we offer it nothing but `ping`."""
        identity = message.get("id")
        if not isinstance(identity, str | int):
            return
        answer: dict[str, object] = {"result": {}}
        if message["method"] != "ping":
            answer = {"error": {"code": METHOD_NOT_FOUND, "message": "Method not found"}}
        self._write(json.dumps({"jsonrpc": "2.0", "id": identity, **answer}).encode() + b"\n")

    async def _read_lines(self) -> AsyncIterator[bytes]:
        parts: list[bytes] = []
        total = 0
        while True:
            try:
                chunk = await self._reader.read(CHUNK_BYTES)
            except ConnectionError:
                chunk = b""
            if not chunk:
                break
            total += len(chunk)
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                yield b"".join((*parts, line))
                parts = []
            parts.append(rest)
            if total > self._output_bytes:
                raise OutputLimitError
        # An answer without its newline is still an answer; half of one tells nothing, and why the
        # program ended does.
        line = b"".join(parts)
        try:
            parse_line(line)
        except BadOutputError:
            return
        yield line


def parse_line(line: bytes) -> dict[str, object]:
    """Reads one JSON-RPC message strictly; integers of any size stay exact.

    Raises:
        BadOutputError: saying what the line is instead.
    """
    try:
        message = json.loads(
            line.decode(),
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
        if b"\\u" in line:
            json.dumps(message, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        raise BadOutputError("wrote bytes that are not UTF-8") from None
    except UnicodeEncodeError:
        raise BadOutputError("wrote half of a surrogate pair") from None
    except RecursionError:
        raise BadOutputError("wrote JSON that nests too deep") from None
    except ValueError as error:
        raise BadOutputError(f"wrote a line that is not JSON ({_reason(error)})") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise BadOutputError("wrote a line that is not a JSON-RPC message")
    if line.count(b"[") + line.count(b"{") > DEPTH and _nests_deeper(message, DEPTH):
        raise BadOutputError("wrote JSON that nests too deep")
    return message


def _reason(error: ValueError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error).partition(";")[0]


def _nests_deeper(value: object, depth: int) -> bool:
    level: list[object] = [value]
    for _ in range(depth):
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        if not inner:
            return False
        level = inner
    return True


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _refuse_constant(text: str) -> object:
    raise ValueError(f"`{text}` is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return number
