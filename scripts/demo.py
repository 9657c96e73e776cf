"""The demo: compiles the example, shows its plan, runs its session on Ray, looks for the token.

What it writes goes to `.demo` in the checkout, anew at every run; Ray's files go to a folder of
their own that is searched and removed.

Exit codes: 0 all as expected, 1 something was not, 3 this host cannot run the demo.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from scripts.leak_search import Searched, forms_of, holds_any, search
from scripts.plan_table import table_of
from subako_ray.schema.plan import load_plan

ROOT: Final = Path(__file__).parents[1]
EXAMPLE: Final = Path("examples/support")
FOLDER: Final = Path(".demo")
PLAN: Final = FOLDER / "plan.json"
STATE: Final = FOLDER / "state"
TOKEN_FILE: Final = FOLDER / "token"
PORT: Final = 8719
URL: Final = f"http://127.0.0.1:{PORT}/mcp"
BEST_EFFORT: Final = ("--limits", "best-effort")
ORDER: Final = b"A-1001"
"""What the session's calls are about; the log must hold it."""
SCRIPTS: Final = Path(sys.executable).parent
READY_SECONDS: Final = 30
STOP_SECONDS: Final = 10


class DemoError(Exception):
    """The demo cannot go on: one line, what to do, and the exit code."""

    def __init__(self, message: str, help_text: str, code: int) -> None:
        super().__init__(message, help_text, code)
        self.message = message
        self.help_text = help_text
        self.code = code


def heading(text: str) -> None:
    """Prints the title of a part."""
    bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}== {text} =={plain}\n", flush=True)


@contextlib.contextmanager
def ended_with(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Ends a process when the block is left in any way."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def show_command(output: bytearray, *arguments: str | Path, ray_folder: Path | None = None) -> int:
    """Runs a `subako` command, shows it and what it prints as it comes, and keeps that.

    Returns:
        Its exit code.
    """
    words = ["subako", *map(str, arguments)]
    print(f"$ {shlex.join(words)}", flush=True)
    environment = dict(os.environ)
    if sys.stdout.isatty():
        environment["FORCE_COLOR"] = "1"
    if ray_folder is not None:
        environment["RAY_TMPDIR"] = str(ray_folder)
    started = subprocess.Popen(
        [SCRIPTS / words[0], *words[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    with ended_with(started) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output += line
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        return process.wait()


def run_command(output: bytearray, *arguments: str | Path, ray_folder: Path | None = None) -> None:
    """Runs a command as `show_command` does.

    Raises:
        DemoError: it did not end with 0.
    """
    code = show_command(output, *arguments, ray_folder=ray_folder)
    if code != 0:
        raise DemoError(
            f"`subako {arguments[0]}` ended with exit code {code}", "see its message above", code
        )


def limits_of_host(output: bytearray) -> tuple[str, ...]:
    """Finds out how this host can isolate, and returns what `subako run` has to be told of it.

    Raises:
        DemoError: it cannot.
    """
    if show_command(output, "doctor") == 0:
        return ()
    print("\nand with limits for each process alone?\n", flush=True)
    run_command(output, "doctor", *BEST_EFFORT)
    print("\nthat will do for the demo, whose code is our own; do not run a stranger's like this")
    return BEST_EFFORT


def refuse_taken_port() -> None:
    """Finds out before anything starts.

    Raises:
        DemoError: something else listens where the example's server has to.
    """
    try:
        socket.create_server(("127.0.0.1", PORT)).close()
    except OSError as error:
        raise DemoError(
            f"port {PORT} on 127.0.0.1 cannot be used ({error.strerror})",
            f"the example's server needs it: end what listens there (`ss -ltnp` names it), or"
            f" change the port in {EXAMPLE}/version.yaml and scripts/demo.py",
            3,
        ) from None


@contextlib.contextmanager
def orders_server() -> Iterator[None]:
    """Runs the example's MCP server as its own process.

    Raises:
        DemoError: it did not start to listen.
    """
    server = EXAMPLE / "orders_server.py"
    started = subprocess.Popen(
        # Its standard input is a pipe of ours, so that it stops even when the demo is killed.
        [sys.executable, server, "--token-file", TOKEN_FILE, "--stop-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with ended_with(started) as process:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
        line = process.stdout.readline().decode() if readable else ""
        if not line.strip().endswith(URL):
            raise DemoError("the orders server did not start", "see its message above", 3)
        print(f"{line.strip()} (process {process.pid})", flush=True)
        yield


def make_token() -> str:
    """Makes a new token and writes it to a file that only this user can read."""
    token = secrets.token_urlsafe(32)
    descriptor = os.open(TOKEN_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(token)
    return token


def report_search(searched: Searched, output: bytearray, token: str) -> None:
    """Says whether the token was found.

    Raises:
        DemoError: it was, or the search is no good.
    """
    if not search([STATE], ORDER).found:
        raise DemoError("the log was not searched", "this is a defect", 1)
    in_output = holds_any(bytes(output), forms_of(token.encode()))
    if searched.found or in_output:
        places = [str(path) for path in searched.found] + ["the output above"] * in_output
        raise DemoError(f"the token was found in {', '.join(places)}", "this is a defect", 1)
    size = searched.size_bytes / 1_000_000
    print(
        f"searched {searched.files} files ({size:.1f} MB) of the event log, the vault, the plan and"
        " Ray's logs, and everything\nprinted above: the token is nowhere, neither as it is nor in"
        f" hex or base64 (what is there, such as\n`{ORDER.decode()}`, the same search finds)"
    )


def demo() -> None:
    """Runs all parts in order.

    Raises:
        DemoError: one of them did not end as it should.
    """
    begun = time.monotonic()
    refuse_taken_port()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(mode=0o700)
    output = bytearray()
    with contextlib.ExitStack() as stack:
        # Short and not below the checkout: Ray makes Unix sockets there (107 characters at most).
        ray_folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="subako-demo-", dir="/tmp"))
        )

        heading("1. Can this host jail code?")
        isolation = limits_of_host(output)

        heading("2. What may the agent do? The version, compiled to a plan")
        run_command(output, "compile", EXAMPLE / "version.yaml", "-o", PLAN)
        print()
        print(table_of(load_plan(PLAN.read_bytes())))

        heading("3. A server that wants a token, and a vault that holds it")
        token = make_token()
        stack.callback(TOKEN_FILE.unlink, missing_ok=True)
        stack.enter_context(orders_server())
        run_command(
            output, "vault", "add", "shop", URL, "--from-file", TOKEN_FILE, "--state", STATE
        )
        TOKEN_FILE.unlink()

        heading("4. A session of the plan on Ray")
        run_command(
            output,
            *("run", PLAN, "--state", STATE, "--vault", "shop"),
            *("--client", EXAMPLE / "client.py", "--script", EXAMPLE / "calls.yaml"),
            *isolation,
            ray_folder=ray_folder,
        )

        heading("5. Where is the token now?")
        report_search(search([FOLDER, ray_folder], token.encode()), output, token)
    print(f"\nevent log: {ROOT / STATE / 'events.db'}")
    print(f"the demo took {time.monotonic() - begun:.0f} seconds")


def stop_on_signal(number: int, _frame: object) -> NoReturn:
    """Ends the demo like an exception does, so that its processes are ended."""
    sys.exit(128 + number)


def main() -> int:
    """Runs the demo and turns its end into an exit code."""
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, stop_on_signal)
    signal.signal(signal.SIGHUP, stop_on_signal)
    try:
        demo()
    except DemoError as error:
        print(f"\nerror: {error.message}\n  help: {error.help_text}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
