"""`subako run` that is told to stop, and one with nothing to read: no log is left open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from processes import gone
from session_bench import builtin_grant, make_plan

from subako_ray.schema.events import Record, SessionEnded
from subako_ray.schema.fixed_tools import SANDBOX_EXEC
from subako_ray.schema.plan import SandboxPlanGrant, plan_tool


def command(folder: Path, *arguments: str) -> list[str]:
    """The command line of a run of a plan with a sandbox and a name."""
    build = SandboxPlanGrant(
        name="build",
        release="2026",
        network="none",
        default_policy="allow",
        tools=(
            plan_tool("sandbox", "build", "exec", "allow", input_schema=SANDBOX_EXEC.input_schema),
        ),
    )
    plan = folder / "plan.json"
    plan.write_bytes(make_plan(build, builtin_grant("session")).to_bytes())
    return [
        *(sys.executable, "-m", "subako_ray.cli.main", "run", str(plan)),
        *("--state", str(folder / "state"), *arguments),
    ]


async def test_a_run_that_is_terminated_ends_its_session_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    marker = "98765.4321"
    call = ("--json", "--call", "sandbox__build__exec", f'{{"command":"/bin/sleep {marker}"}}')
    with subprocess.Popen(
        command(tmp_path, *call), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if '"running"' in line:
                break
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert errors.splitlines()[-1] == "stopped"
    records = [Record.model_validate_json(line) for line in [*lines, *rest.splitlines()]]
    assert records[-1].event == SessionEnded(reason="cancelled")
    assert await gone(marker)


def test_a_run_whose_streams_are_closed_runs_and_what_applications_print_is_no_event(
    tmp_path: Path,
) -> None:
    client = tmp_path / "shop.py"
    client.write_text(
        "from subako_ray.executor.client_tools import Client\n"
        "print('at import')\n"
        "CLIENT = Client('shop')\n"
        "@CLIENT.tool(description='', parameters={'type': 'object'})\n"
        "def show(arguments):\n    print('in a call')\n    return 'shown'\n"
    )
    arguments = ("--json", "--client", str(client), "--call", "client__shop__show", "{}")
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" 0<&-', "sh", *command(tmp_path, *arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = [Record.model_validate_json(line) for line in done.stdout.splitlines()]
    assert isinstance(records[-1].event, SessionEnded)
    assert "at import" in done.stderr
    assert "in a call" in done.stderr
