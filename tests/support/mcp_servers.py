"""Real MCP servers for tests: the example's orders server, and one with faults by name."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

ORDERS_SERVER = Path(__file__).parents[2] / "examples" / "support" / "orders_server.py"

Fault = Literal["401", "403", "429", "500", "redirect", "close", "garbage"]


@dataclass(frozen=True, slots=True)
class OrdersServer:
    """A running orders server and the one token it takes."""

    url: str
    token: str = field(repr=False)


@contextlib.contextmanager
def orders_server(folder: Path) -> Iterator[OrdersServer]:
    """Runs the example's MCP server as its own process until the block is left."""
    token = "canary-" + secrets.token_hex(16)
    token_file = folder / "orders-token"
    token_file.touch(mode=0o600)
    token_file.write_text(token)
    with subprocess.Popen(
        [
            sys.executable,
            str(ORDERS_SERVER),
            "--token-file",
            str(token_file),
            "--port",
            "0",
            "--stop-with-stdin",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        ready = process.stdout.readline()
        assert "ready at" in ready, ready
        try:
            yield OrdersServer(ready.split()[-1], token)
        finally:
            process.stdin.close()
            process.wait(timeout=10)


class FaultyServer(ThreadingHTTPServer):
    """An HTTP server that does one thing wrong to every request, and keeps what it was sent."""

    daemon_threads = True

    def __init__(self, fault: Fault, location: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _FaultyHandler)
        self.fault = fault
        self.location = location
        self.authorizations: list[str | None] = []

    @property
    def url(self) -> str:
        """Where its MCP endpoint would be."""
        return f"http://127.0.0.1:{self.server_port}/mcp"


class _FaultyHandler(BaseHTTPRequestHandler):
    server: FaultyServer

    def do_POST(self) -> None:
        self.server.authorizations.append(self.headers.get("authorization"))
        self.rfile.read(int(self.headers.get("content-length", 0)))
        echo = "\n".join(f"{name}: {value}" for name, value in self.headers.items()).encode()
        match self.server.fault:
            case "401" | "403" | "429" | "500":
                self._answer(int(self.server.fault), echo)
            case "redirect":
                self.send_response(307)
                self.send_header("location", self.server.location)
                self.send_header("content-length", "0")
                self.end_headers()
            case "garbage":
                self._answer(200, b"{" + echo)
            case "close":
                self.connection.close()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Says nothing."""


@contextlib.contextmanager
def faulty_server(fault: Fault, location: str = "") -> Iterator[FaultyServer]:
    """Runs a faulty server in a thread until the block is left."""
    server = FaultyServer(fault, location)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
