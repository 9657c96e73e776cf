"""`subako run` at a terminal: a person is asked for what no script decides."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from isolation import limits_mode
from session_bench import builtin_grant, make_plan

from subako_ray.schema.fixed_tools import SANDBOX_EXEC
from subako_ray.schema.plan import SandboxPlanGrant, plan_tool


class Terminal:
    """A program on a real terminal, and a person who waits for words and types."""

    def __init__(self, *command: str) -> None:
        self._screen, inner = pty.openpty()
        self._process = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "NO_COLOR": "1", "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(inner)
        self.seen = ""
        self._read = 0

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Reads until the text appears after what was waited for before."""
        end = time.monotonic() + seconds
        while (found := self.seen.find(text, self._read)) < 0:
            ready, _, _ = select.select([self._screen], [], [], max(0, end - time.monotonic()))
            assert ready, f"{text!r} did not appear in:\n{self.seen}"
            try:
                self.seen += os.read(self._screen, 65_536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"{text!r} did not appear in:\n{self.seen}") from None
        self._read = found + len(text)

    def type(self, text: str) -> None:
        """Types a line."""
        os.write(self._screen, f"{text}\n".encode())

    def end(self) -> int:
        """Waits for the program and returns its exit code."""
        try:
            return self._process.wait(timeout=60)
        finally:
            os.close(self._screen)


def test_a_person_decides_answers_and_sees_why_an_answer_does_not_fit(tmp_path: Path) -> None:
    build = SandboxPlanGrant(
        name="build",
        release="2026",
        network="none",
        default_policy="require_approval",
        tools=(
            plan_tool(
                "sandbox",
                "build",
                "exec",
                "require_approval",
                input_schema=SANDBOX_EXEC.input_schema,
            ),
        ),
    )
    plan = tmp_path / "plan.json"
    plan.write_bytes(make_plan(build, builtin_grant("ask_user")).to_bytes())
    question = (
        '{"message":"How many?","schema":{"type":"object","required":["count"],'
        '"properties":{"count":{"type":"integer"},"note":{"type":"string"}}}}'
    )
    call = "sandbox__build__exec"
    terminal = Terminal(
        *(sys.executable, "-m", "subako_ray.cli.main", "run", str(plan), "--limits", limits_mode()),
        *("--state", str(tmp_path / "state")),
        *("--call", call, '{"command":"echo allowed"}'),
        *("--call", call, '{"command":"echo never"}'),
        *("--call", "builtin__ask_user__ask", question),
    )
    terminal.wait_for("allow this call? [y]es, [n]o: ")
    terminal.type("perhaps")
    terminal.wait_for("allow this call? [y]es, [n]o: ")
    terminal.type("y")
    terminal.wait_for("    allowed")
    terminal.wait_for("allow this call? [y]es, [n]o: ")
    terminal.type("n")
    terminal.wait_for("message for the model")
    terminal.type("not today")
    terminal.wait_for("a person denied this call: not today")
    terminal.wait_for("answer? [a]ccept, [d]ecline, [c]ancel: ")
    terminal.type("a")
    terminal.wait_for("count (integer): ")
    terminal.type("many")
    terminal.wait_for("note (string, may be empty): ")
    terminal.type("")
    terminal.wait_for("the answer does not fit")
    terminal.wait_for("answer? [a]ccept, [d]ecline, [c]ancel: ")
    terminal.type("a")
    terminal.wait_for("count (integer): ")
    terminal.type("3")
    terminal.wait_for("note (string, may be empty): ")
    terminal.type("")
    terminal.wait_for('{"action":"accept","content":{"count":3}}')
    terminal.wait_for("session ended (closed)")
    # One call did not succeed, and nothing said that it should not.
    assert terminal.end() == 1
    assert "    never" not in terminal.seen
