"""The last hop to an MCP server: attaches the credential to the request, keeps HTTP errors honest.

Only here does a token meet a request. It is fetched for this request, set on it when the request
goes to exactly the granted URL, and dropped. A failure of the network or the server becomes an
error of that one request, because anything else ends the whole connection (mcp 2.3).
"""

from __future__ import annotations

import json
import secrets
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import httpx2

from subako_ray.executor.credentials import Credential, CredentialProvider
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.source import Approved
from subako_ray.schema import limits
from subako_ray.schema.secret import Secret
from subako_ray.schema.target import McpTarget, TargetError

REQUEST_ERROR_CODE: Final = 1000
"""JSON-RPC code of errors made here; outside the range that JSON-RPC reserves."""

_MARK: Final = secrets.token_hex(16)
"""Tells failures made here from a server's errors; no server ever sees it."""

_NEVER_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


@dataclass(slots=True, kw_only=True)
class RequestScope:
    """What one call of ours allows and learns about the requests made for it.

    Attributes:
        approved: the credential that a person approved, when the call was held.
        used: tokens attached for this call, to be redacted from what comes back.
        missing: why there was no credential to attach.
    """

    approved: Approved | None = None
    used: list[Secret] = field(default_factory=list)
    missing: str | None = None


REQUEST_SCOPE: ContextVar[RequestScope | None] = ContextVar("request_scope", default=None)


class RequestFailure(NamedTuple):
    """Why a request made here has no answer of the server's.

    Attributes:
        http_status: the server's, when it answered at all.
        kind: `http`, `network`, `bad_json`, `too_large`, `credential_changed` or `vault`.
        never_sent: whether it is certain that the server did not get the request.
        detail: how the network failed.
    """

    kind: str
    http_status: int | None
    never_sent: bool
    detail: str | None


def network_failure(error: httpx2.TransportError) -> str:
    """Says in our own words how the network failed; a library's text is for its developers."""
    match error:
        case httpx2.ConnectError():
            return "nothing answers there, or not with the TLS it should"
        case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return "no connection in time"
        case httpx2.TimeoutException():
            return "it fell silent"
        case httpx2.RemoteProtocolError() | httpx2.ReadError():
            return "it broke the connection off"
        case _:
            return "the connection failed"


def failure_from(data: object) -> RequestFailure | None:
    """Reads a failure back from the `data` of an `MCPError`; None when it is the server's own."""
    if not isinstance(data, dict) or data.get("mark") != _MARK:
        return None
    return RequestFailure(
        data["kind"], data.get("http_status"), bool(data.get("never_sent")), data.get("detail")
    )


class CredentialTransport(httpx2.AsyncBaseTransport):
    """Wraps the HTTP transport of one connection of one session."""

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, target: McpTarget, credentials: CredentialProvider
    ) -> None:
        self._inner = inner
        self._target = target
        self._credentials = credentials

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends one request with its credential; answers failures as JSON-RPC errors."""
        scope = REQUEST_SCOPE.get() or RequestScope()
        try:
            authorised = await self._authorise(request, scope)
        except ExecutorError as error:
            return _failure(request, RequestFailure("vault", None, True, error.code))
        if not authorised:
            return _failure(request, RequestFailure("credential_changed", None, True, None))
        try:
            response = await self._inner.handle_async_request(request)
            return await self._checked(request, response)
        except httpx2.TransportError as error:
            never_sent = isinstance(error, _NEVER_SENT)
            if request.headers.get("mcp-method") == "server/discover":
                # An outage must not be taken for a server of the older protocol.
                raise
            return _failure(
                request, RequestFailure("network", None, never_sent, network_failure(error))
            )
        finally:
            request.headers.pop("authorization", None)

    async def aclose(self) -> None:
        """Closes the wrapped transport."""
        await self._inner.aclose()

    async def _authorise(self, request: httpx2.Request, scope: RequestScope) -> bool:
        request.headers.pop("authorization", None)
        # A redirect's new place is not what was granted: it gets the request, never the credential.
        if not self._is_exact(str(request.url)):
            return True
        answer = await self._credentials.fetch(str(self._target))
        found = answer.credential_id if isinstance(answer, Credential) else None
        if scope.approved is not None and scope.approved.credential != found:
            return False
        if isinstance(answer, Credential):
            scope.used.append(answer.token)
            request.headers["Authorization"] = f"Bearer {answer.token.reveal()}"
        else:
            scope.missing = answer.reason
        return True

    def _is_exact(self, url: str) -> bool:
        try:
            asked = McpTarget.parse(url)
        except TargetError:
            return False
        # HTTP has no empty path: a URL without one is asked for as `/`.
        return asked == (self._target if self._target.path else replace(self._target, path="/"))

    async def _checked(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        kind = response.headers.get("content-type", "").lower()
        if response.status_code < 400 and not kind.startswith("application/json"):
            return response
        try:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > limits.REPLY_BYTES:
                    return _failure(
                        request, RequestFailure("too_large", response.status_code, False, None)
                    )
        finally:
            await response.aclose()
        message = _json_object(bytes(body))
        if response.status_code >= 400 and not isinstance(message.get("error"), dict):
            return _failure(request, RequestFailure("http", response.status_code, False, None))
        if body and not message:
            return _failure(request, RequestFailure("bad_json", response.status_code, False, None))
        headers = {
            name: value
            for name, value in response.headers.items()
            if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
        }
        return httpx2.Response(
            response.status_code, headers=headers, content=bytes(body), request=request
        )


def _json_object(body: bytes) -> dict[str, object]:
    """Reads a JSON object; an empty one when the body is anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _failure(request: httpx2.Request, failure: RequestFailure) -> httpx2.Response:
    status = failure.http_status if failure.http_status and failure.http_status >= 400 else 503
    data = {"mark": _MARK, **failure._asdict()}
    error = {"code": REQUEST_ERROR_CODE, "message": failure.kind, "data": data}
    return httpx2.Response(
        status, request=request, json={"jsonrpc": "2.0", "id": None, "error": error}
    )
