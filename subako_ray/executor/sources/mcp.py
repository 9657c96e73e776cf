"""MCP source: one connection to one server for one session, over Streamable HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from functools import cache
from typing import Any, Final, Literal

import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from pydantic import ValidationError

from subako_ray.executor.credentials import Credential, CredentialProvider
from subako_ray.executor.source import Listing, OfferedTool, SourceCall, SourceUnavailableError
from subako_ray.executor.sources.mcp_result import outcome_of, redacted, without_tokens
from subako_ray.executor.sources.mcp_transport import (
    REQUEST_SCOPE,
    CredentialTransport,
    RequestFailure,
    RequestScope,
    failure_from,
    network_failure,
)
from subako_ray.schema import limits
from subako_ray.schema.outcome import Outcome, ended
from subako_ray.schema.target import McpTarget

# The SDK logs what servers send, and a server may echo the token it was sent.
logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)

_TIMEOUT_CODE: Final = mcp_types.REQUEST_TIMEOUT
_PAGES_MAX: Final = 100


class _Connection:
    """An entered client, owned by the one task that must also leave it (anyio's rule)."""

    def __init__(self, url: str, transport: httpx2.AsyncBaseTransport) -> None:
        self._url = url
        self._transport = transport
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._own())

    async def client(self) -> Client:
        return await asyncio.shield(self._ready)

    @property
    def alive(self) -> bool:
        return not self._task.done()

    async def close(self) -> None:
        self._stop.set()
        await asyncio.wait({self._task}, timeout=5)
        self._task.cancel()

    async def _own(self) -> None:
        try:
            async with self._entered() as client:
                self._ready.set_result(client)
                await self._stop.wait()
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the client
            if not self._ready.done():
                self._ready.set_exception(_first_leaf(error))
                self._ready.exception()

    @contextlib.asynccontextmanager
    async def _entered(self) -> AsyncIterator[Client]:
        timeout = httpx2.Timeout(
            limits.MCP_CALL_SECONDS, connect=limits.MCP_CONNECT_SECONDS, pool=None
        )
        async with (
            httpx2.AsyncClient(
                transport=self._transport, timeout=timeout, follow_redirects=False, trust_env=False
            ) as http,
            Client(
                streamable_http_client(self._url, http_client=http),
                cache=None,
                read_timeout_seconds=limits.MCP_CALL_SECONDS,
            ) as client,
        ):
            yield client


class McpSource:
    """One MCP grant of a session."""

    kind: Literal["mcp"] = "mcp"

    def __init__(self, name: str, url: str, credentials: CredentialProvider) -> None:
        """Makes the source; nothing is sent before `open`.

        Args:
            name: the grant's.
            url: the grant's, as the plan has it.
            credentials: the session's.
        """
        self.name = name
        self._url = url
        self._target = McpTarget.parse(url)
        self._credentials = credentials
        self._connection: _Connection | None = None

    async def open(self) -> Listing:
        """Connects and lists all pages of tools."""
        scope = RequestScope()
        token = REQUEST_SCOPE.set(scope)
        try:
            async with asyncio.timeout(limits.MCP_CONNECT_SECONDS):
                client = await self._connected()
                tools = await _all_tools(client)
            offered = tuple(_offered(tool, scope) for tool in tools)
        except TimeoutError:
            raise SourceUnavailableError(
                f"server `{self.name}` did not answer in {limits.MCP_CONNECT_SECONDS} s"
            ) from None
        except MCPError as error:
            raise SourceUnavailableError(self._explain(error, scope)) from None
        except httpx2.TransportError as error:
            raise SourceUnavailableError(
                f"server `{self.name}` cannot be reached: {network_failure(error)}"
            ) from None
        except (ValidationError, RuntimeError):
            raise SourceUnavailableError(
                f"server `{self.name}` listed its tools in no form of MCP"
            ) from None
        except _ListingError:
            raise SourceUnavailableError(
                f"server `{self.name}` does not come to the end of its tools"
            ) from None
        finally:
            REQUEST_SCOPE.reset(token)
            scope.used.clear()
        return Listing(tools=offered)

    async def credential(self) -> str | None:
        """Identity of the credential that the session's vaults have for this URL now."""
        answer = await self._credentials.fetch(str(self._target))
        return answer.credential_id if isinstance(answer, Credential) else None

    async def call(self, call: SourceCall) -> Outcome:
        """Calls the tool once; a call that may have reached the server is never sent again."""
        scope = RequestScope(approved=call.approved)
        token = REQUEST_SCOPE.set(scope)
        try:
            client = await self._connected()
            # The request is made here rather than by `call_tool`, which after the tool has run
            # may throw the result away over its output schema, or list the tools again.
            result = await client.session.send_request(
                mcp_types.CallToolRequest(
                    params=mcp_types.CallToolRequestParams(name=call.tool, arguments=call.arguments)
                ),
                mcp_types.CallToolResult,
                request_read_timeout_seconds=limits.MCP_CALL_SECONDS,
            )
            outcome = outcome_of(result)
        except MCPError as error:
            outcome = self._failed(error, scope)
        except httpx2.TransportError as error:
            raise SourceUnavailableError(
                f"server `{self.name}` cannot be reached: {network_failure(error)}"
            ) from None
        except ValidationError:
            outcome = ended(
                "tool_failed", "bad_result", f"server `{self.name}` answered with no valid result"
            )
        finally:
            REQUEST_SCOPE.reset(token)
        return redacted(outcome, scope.used)

    async def close(self) -> None:
        """Ends the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connected(self) -> Client:
        if self._connection is None or not self._connection.alive:
            transport = CredentialTransport(
                httpx2.AsyncHTTPTransport(verify=_tls(), trust_env=False),
                self._target,
                self._credentials,
            )
            self._connection = _Connection(self._url, transport)
        return await self._connection.client()

    def _failed(self, error: MCPError, scope: RequestScope) -> Outcome:
        failure = failure_from(error.data)
        if failure is None:
            if error.code == _TIMEOUT_CODE:
                return ended(
                    "timed_out",
                    "may_have_run",
                    f"server `{self.name}` did not answer in {limits.MCP_CALL_SECONDS} s",
                )
            if error.code == mcp_types.CONNECTION_CLOSED:
                return ended(
                    "unknown", "connection_lost", f"server `{self.name}` closed the connection"
                )
            return ended(
                "tool_failed",
                "rejected",
                # Redacted before it is cut: half a token is one too many.
                f"server `{self.name}` says: {without_tokens(error.message, scope.used)[:2000]}",
            )
        text = self._explain(error, scope)
        match failure:
            case RequestFailure(kind="credential_changed"):
                return ended("denied", "credential_changed", text)
            case RequestFailure(never_sent=True):
                return ended("source_unavailable", "not_reached", text)
            case RequestFailure(kind="http", http_status=401 | 403):
                return ended(
                    "source_unavailable", "no_credential" if scope.missing else "refused", text
                )
            case RequestFailure(kind="http", http_status=int(status)) if status < 500:
                return ended("source_unavailable", "refused", text)
            case _:
                return ended("unknown", "may_have_run", f"{text}; the call may have run")

    def _explain(self, error: MCPError, scope: RequestScope) -> str:
        """One line of our own words: the server's body may echo what it was sent."""
        failure = failure_from(error.data)
        if failure is None:
            return f"server `{self.name}` answered with error {error.code}"
        match failure.kind:
            case "vault":
                return f"the vaults cannot be asked for the credential of server `{self.name}`"
            case "credential_changed":
                return f"the credential for `{self.name}` is not the one that was approved"
            case "network":
                return f"server `{self.name}` cannot be reached: {failure.detail}"
            case "bad_json":
                return f"server `{self.name}` answered with no JSON message"
            case "too_large":
                return f"server `{self.name}` answered with more than {limits.REPLY_BYTES} bytes"
        refused = f"server `{self.name}` answered with HTTP status {failure.http_status}"
        if failure.http_status in (401, 403) and scope.missing:
            return f"{refused}, and there is no credential for it: {scope.missing}"
        return refused


class _ListingError(Exception):
    """A server's pages of tools do not come to an end."""


async def _all_tools(client: Client) -> list[mcp_types.Tool]:
    tools: list[mcp_types.Tool] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(_PAGES_MAX):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            return tools
        if cursor in seen or len(tools) > limits.TOOLS_PER_GRANT:
            break
        seen.add(cursor)
    raise _ListingError


def _offered(tool: mcp_types.Tool, scope: RequestScope) -> OfferedTool:
    """A tool's descriptor; a server may put the token it was sent into any part of it."""
    annotations: dict[str, Any] | None = None
    if tool.annotations is not None:
        annotations = tool.annotations.model_dump(mode="json", by_alias=True, exclude_none=True)
    return OfferedTool(
        **without_tokens(
            {
                "name": tool.name,
                "title": tool.title,
                "description": tool.description,
                "input_schema": tool.input_schema,
                "output_schema": tool.output_schema,
                "annotations": annotations,
            },
            scope.used,
        )
    )


def _first_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@cache
def _tls() -> ssl.SSLContext:
    """One context for the process: making one loads the whole trust store."""
    return httpx2.create_ssl_context()
