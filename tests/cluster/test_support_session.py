"""The example's whole session by `subako run`: all six kinds, real parts, and no token anywhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from isolation import limits_mode
from mcp_servers import OrdersServer, orders_server

from subako_ray.schema.events import CallEnded, CallRequested, Record
from subako_ray.schema.names import KINDS, split_name

EXAMPLE = Path(__file__).parents[2] / "examples" / "support"


class Shop:
    """The example with its server on a free port, in folders of a test."""

    def __init__(self, folder: Path, orders: OrdersServer) -> None:
        self.orders = orders
        self.state = folder / "state"
        self.version = folder / "support" / "version.yaml"
        shutil.copytree(EXAMPLE, folder / "support", ignore=shutil.ignore_patterns("__pycache__"))
        text = self.version.read_text()
        assert "http://127.0.0.1:8719/mcp" in text
        self.version.write_text(text.replace("http://127.0.0.1:8719/mcp", orders.url))

    def subako(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Runs the command in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "subako_ray.cli.main", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "NO_COLOR": "1"},
            check=False,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a session of the example with its vault and client."""
        return self.subako(
            "run",
            str(self.version),
            "--limits",
            limits_mode(),
            "--state",
            str(self.state),
            "--vault",
            "shop",
            "--client",
            str(self.version.parent / "client.py"),
            *arguments,
        )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A shop whose vault holds the server's token."""
    folder = tmp_path_factory.mktemp("shop")
    with orders_server(tmp_path_factory.mktemp("orders")) as orders:
        shop = Shop(folder, orders)
        added = shop.subako(
            "vault",
            "add",
            "shop",
            orders.url,
            "--stdin",
            "--state",
            str(shop.state),
            stdin=orders.token,
        )
        assert added.returncode == 0, added.stderr
        yield shop


def test_the_script_of_the_example_runs_as_it_expects(shop: Shop) -> None:
    done = shop.run("--script", str(shop.version.parent / "calls.yaml"), "--json")
    assert done.returncode == 0, done.stderr
    records = [Record.model_validate_json(line) for line in done.stdout.splitlines()]
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    names = [r.event.name for r in records if isinstance(r.event, CallRequested)]
    assert {name.kind for name in map(split_name, names) if name} == set(KINDS)
    outcomes = [r.event.outcome.status for r in records if isinstance(r.event, CallEnded)]
    assert len(outcomes) == len(names)
    assert outcomes.count("denied") == 2
    assert set(outcomes) == {"succeeded", "denied"}
    written = [path for path in shop.state.rglob("*") if path.is_file()]
    assert written
    everything = b"".join(path.read_bytes() for path in written)
    assert shop.orders.token.encode() not in everything
    assert shop.orders.token not in done.stdout + done.stderr


def test_the_transcript_tells_the_story(shop: Shop) -> None:
    done = shop.run(
        "--call",
        "mcp__orders__lookup",
        '{"order_id": "A-1001"}',
        "--call",
        "mcp__orders__refund",
        '{"order_id":"A-1001","amount":"1.00","reason":"r"}',
    )
    # Nobody is at a terminal and no script decides: the held call is cancelled, never made up.
    assert done.returncode == 1
    assert "nobody is here to decide" in done.stderr
    assert "mcp__orders__lookup" in done.stdout
    assert "held for approval: mcp:orders" in done.stdout
    assert "cancelled (not_run)" in done.stdout
    assert "\x1b" not in done.stdout
    assert "events.db" in done.stdout


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        (("mcp__nowhere__x", "{}"), 1, "no grant or client `mcp__nowhere`"),
        (("nonsense", "{}"), 1, "is no tool name"),
        (("mcp__orders__lookup", "["), 2, "are wrong: not JSON"),
        (("mcp__orders__lookup", "[]"), 2, "not a JSON object"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_starts(
    shop: Shop, call: tuple[str, str], code: int, said: str
) -> None:
    done = shop.run("--call", *call)
    assert done.returncode == code
    assert said in done.stderr
    assert "starting Ray" not in done.stderr
    assert done.stdout == ""


def test_an_unknown_tool_is_refused_after_the_catalogue_and_before_the_first_call(
    shop: Shop, tmp_path: Path
) -> None:
    script = tmp_path / "calls.yaml"
    calls = [
        {"call": "builtin__session__name", "arguments": {"name": "x"}},
        {"call": "mcp__orders__lookupp", "arguments": {}},
    ]
    script.write_text(json.dumps({"calls": calls}))
    done = shop.run("--script", str(script))
    assert done.returncode == 1
    assert "there is no tool `mcp__orders__lookupp`" in done.stderr
    assert "mcp__orders__lookup" in done.stderr
    assert "builtin__session__name" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run", "missing.yaml", "--call", "a", "{}"), 2, "cannot be read"),
        (("run", str(EXAMPLE / "version.yaml")), 2, "no call to make"),
        (("run",), 2, "VERSION_OR_PLAN"),
        (
            ("run", str(EXAMPLE / "version.yaml"), "--script", str(EXAMPLE / "missing.yaml")),
            2,
            "the script",
        ),
        (
            (
                "run",
                str(EXAMPLE / "version.yaml"),
                "--client",
                str(EXAMPLE / "version.yaml"),
                "--call",
                "builtin__session__name",
                "{}",
            ),
            2,
            "no Python file",
        ),
    ],
)
def test_wrong_usage_has_its_code_and_no_traceback(
    shop: Shop, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = shop.subako(*arguments, "--state", str(tmp_path / "state"))
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert said in done.stderr


def test_an_unknown_vault_is_a_clear_error(shop: Shop) -> None:
    done = shop.run("--vault", "nobody", "--call", "builtin__session__name", '{"name": "x"}')
    assert done.returncode == 1
    assert "nobody" in done.stderr
    assert "Traceback" not in done.stderr
