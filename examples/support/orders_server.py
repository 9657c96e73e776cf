"""The shop's MCP server: orders over streamable HTTP on 127.0.0.1, behind one bearer token.

    python orders_server.py --token-file PATH [--port 8719]

Prints one line when it listens. Every request without the token is refused with 401, before any
MCP is spoken. The data is the same at every start.
"""

from __future__ import annotations

import argparse
import hmac
import socket
import stat
import sys
import threading
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TypedDict

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from starlette.types import ASGIApp, Receive, Scope, Send

HOST = "127.0.0.1"
PORT = 8719
"""The port of `version.yaml`."""


@dataclass(slots=True)
class Order:
    """One order of the shop; amounts in EUR."""

    customer: str
    status: str
    lines: list[str]
    total: Decimal
    refunds: list[Decimal] = field(default_factory=list)


class OrderAnswer(TypedDict):
    """What the tools say about an order."""

    order_id: str
    customer: str
    status: str
    lines: list[str]
    total: str
    refunded: str


def make_orders() -> dict[str, Order]:
    """Returns the orders the shop has when the server starts."""
    return {
        "A-1001": Order(
            "Mina Okafor", "shipped", ["2 x 39.90 kettle", "1 x 4.95 descaler"], Decimal("84.75")
        ),
        "A-1002": Order("Mina Okafor", "delivered", ["1 x 249.00 grinder"], Decimal("249.00")),
        "A-1003": Order("Jonas Weber", "in preparation", ["6 x 8.50 cup"], Decimal("51.00")),
    }


def make_server(orders: dict[str, Order]) -> MCPServer:
    """Returns the MCP server over some orders."""
    server = MCPServer("orders", version="1", log_level="WARNING")

    def find(order_id: str) -> Order:
        if order_id not in orders:
            raise ToolError(f"there is no order `{order_id}`")
        return orders[order_id]

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def list_orders(customer: str) -> list[str]:
        """List the ids of a customer's orders."""
        return [order_id for order_id, order in orders.items() if order.customer == customer]

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def lookup(order_id: str) -> OrderAnswer:
        """Show an order: customer, status, lines, total and what was refunded (EUR)."""
        order = find(order_id)
        return OrderAnswer(
            order_id=order_id,
            customer=order.customer,
            status=order.status,
            lines=order.lines,
            total=str(order.total),
            refunded=str(sum(order.refunds, Decimal("0.00"))),
        )

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    def refund(order_id: str, amount: str, reason: str) -> str:
        """Pay money back to the customer of an order.

        `amount` is EUR with two decimals, such as `39.90`. A refund cannot be taken back.
        """
        order = find(order_id)
        try:
            paid_back = Decimal(amount)
        except InvalidOperation:
            raise ToolError(f"`{amount}` is not an amount such as `39.90`") from None
        left = order.total - sum(order.refunds, Decimal(0))
        if not paid_back.is_finite() or not 0 < paid_back <= left:
            raise ToolError(f"order `{order_id}` has {left} EUR left to refund")
        order.refunds.append(paid_back)
        return f"refunded {paid_back} EUR of order {order_id} to {order.customer}: {reason}"

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    def delete_order(order_id: str) -> str:
        """Delete an order and everything known about it."""
        find(order_id)
        del orders[order_id]
        return f"deleted order {order_id}"

    return server


class RequireBearer:
    """Lets a request through only when it carries the token."""

    def __init__(self, application: ASGIApp, token: str) -> None:
        self._application = application
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers 401 unless the `Authorization` header is the expected one."""
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                await send({"type": "http.response.body", "body": b"a bearer token is required\n"})
                return
        await self._application(scope, receive, send)


class AnnouncingServer(uvicorn.Server):
    """A server that says when it listens, for whoever waits for it."""

    announcement: str

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen and prints the announcement."""
        await super().startup(sockets)
        if self.started:
            print(self.announcement, flush=True)


def read_token(path: Path) -> str:
    """Reads the token from a file that nobody else can read.

    Raises:
        ValueError: the file is open to others, or holds no token.
    """
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ValueError("the token file is open to others: `chmod 600` it")
    token = path.read_text(encoding="ascii").strip()
    if not token or not token.isprintable() or " " in token:
        raise ValueError("the token file holds no token")
    return token


def main() -> int:
    """Serves until it is told to stop."""
    parser = argparse.ArgumentParser(description="the orders MCP server of the example")
    parser.add_argument("--token-file", type=Path, required=True, metavar="PATH")
    parser.add_argument("--port", type=int, default=PORT, help=f"0: any; default {PORT}")
    parser.add_argument(
        "--stop-with-stdin", action="store_true", help="stop when standard input is closed"
    )
    arguments = parser.parse_args()
    try:
        token = read_token(arguments.token_file)
        listener = socket.create_server((HOST, arguments.port))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    application = RequireBearer(make_server(make_orders()).streamable_http_app(), token)
    server = AnnouncingServer(
        uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=1)
    )
    server.announcement = f"orders server ready at http://{HOST}:{listener.getsockname()[1]}/mcp"

    def stop_with_stdin() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True

    if arguments.stop_with_stdin:
        threading.Thread(target=stop_with_stdin, daemon=True).start()
    server.run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
