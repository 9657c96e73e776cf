"""What is said in MCP to a program of a function package: opening, listing, calling.

Sources: the MCP specification, revisions 2024-11-05 to 2025-11-25 (handshake) and 2026-07-28 (no
handshake; version and capabilities go with every request in `_meta`).
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from subako_ray import __version__
from subako_ray.sandbox.stdio_channel import (
    BadOutputError,
    EndOfOutputError,
    Error,
    Result,
    StdioChannel,
)
from subako_ray.schema import limits

MODERN_VERSION: Final = "2026-07-28"
HANDSHAKE_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Newest first."""

PROBE_SECONDS: Final = 10.0
"""How long a program may think about `server/discover`, at most half of its time."""
PAGES: Final = 100

_CLIENT: Final = {"name": "subako", "version": __version__}
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
    "io.modelcontextprotocol/clientInfo": _CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class RefusedError(Exception):
    """The program answered a request with a JSON-RPC error."""

    def __init__(self, error: Error) -> None:
        super().__init__(error)
        self.error = error


class UnansweredProbeError(Exception):
    """The program died of `server/discover`, or kept silent; it needs a new start without it.

    Servers made with Python SDKs before 1.9 do the first, by report others do the second.
    """


class Dialogue:
    """One conversation with one program, from its opening to its one answer."""

    def __init__(
        self, channel: StdioChannel, protocol_version: str | None, *, timeout_seconds: float
    ) -> None:
        """Takes the channel and what is known of the program.

        Args:
            channel: the program's pipes.
            protocol_version: what it speaks; None when that must be asked.
            timeout_seconds: how long its jail lives.
        """
        self._channel = channel
        self._version = protocol_version
        self._timeout_seconds = timeout_seconds
        self.called = False
        """Whether the program was asked to run a tool."""

    async def open(self) -> str:
        """Makes the program ready for requests, and returns the version it speaks.

        Raises:
            RefusedError, UnansweredProbeError, and what `StdioChannel.request` raises.
        """
        if self._version is None:
            self._version = MODERN_VERSION if await self._is_modern() else HANDSHAKE_VERSIONS[0]
        if self._version != MODERN_VERSION:
            self._version = await self._shake_hands(self._version)
        return self._version

    async def list_tools(self) -> list[dict[str, object]]:
        """Returns all tools of all pages as the program describes them.

        Raises:
            RefusedError, and what `StdioChannel.request` raises.
        """
        tools: list[dict[str, object]] = []
        cursors: set[str] = set()
        params: dict[str, object] = {}
        while len(cursors) < PAGES:
            page = await self._ask("tools/list", params)
            listed = page.get("tools")
            if not isinstance(listed, list):
                raise BadOutputError("answered `tools/list` without a list of tools")
            for tool in listed:
                if not isinstance(tool, dict):
                    raise BadOutputError("lists a tool that is not an object")
                tools.append(tool)
            if len(tools) > limits.TOOLS_PER_GRANT:
                raise BadOutputError(f"lists more than {limits.TOOLS_PER_GRANT} tools")
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                return tools
            if cursor in cursors:
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        raise BadOutputError("lists its tools in pages without end")

    async def call_tool(self, name: str, arguments: bytes) -> dict[str, object]:
        """Calls a tool and returns its result.

        Args:
            name: the tool's name as the program reports it.
            arguments: a JSON object as text without a newline.

        Raises:
            RefusedError, and what `StdioChannel.request` raises.
        """
        self.called = True
        return await self._ask("tools/call", {"name": name}, b',"arguments":' + arguments)

    async def _ask(
        self, method: str, params: dict[str, object], more: bytes = b""
    ) -> dict[str, object]:
        if self._version == MODERN_VERSION:
            params = {**params, "_meta": _META}
        text = json.dumps(params).encode()
        if more:
            text = text[:-1] + more + b"}"
        match await self._channel.request(method, text):
            case Error() as error:
                raise RefusedError(error)
            case Result(value=value):
                kind = value.get("resultType", "complete")
                if kind != "complete":
                    raise BadOutputError(f"answered `{method}` with a result that is not complete")
                return value

    async def _is_modern(self) -> bool:
        question = json.dumps({"_meta": _META}).encode()
        try:
            async with asyncio.timeout(min(PROBE_SECONDS, self._timeout_seconds / 2)):
                answer = await self._channel.request("server/discover", question)
        except (TimeoutError, EndOfOutputError):
            raise UnansweredProbeError from None
        if isinstance(answer, Error):
            return False
        versions = answer.value.get("supportedVersions")
        return isinstance(versions, list) and MODERN_VERSION in versions

    async def _shake_hands(self, version: str) -> str:
        hello: dict[str, object] = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": _CLIENT,
        }
        answer = await self._ask("initialize", hello)
        agreed = answer.get("protocolVersion")
        if not isinstance(agreed, str) or agreed not in HANDSHAKE_VERSIONS:
            raise BadOutputError("speaks a version of MCP that we do not")
        self._channel.notify("notifications/initialized")
        return agreed
