"""Parts of the demo that need no Ray: the table of a plan, and what stops it before it starts."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path

from scripts.demo import PORT
from scripts.plan_table import table_of
from subako_ray.schema.manifest import AnthropicModel
from subako_ray.schema.plan import (
    McpPlanGrant,
    PlanApprovals,
    SandboxPlanGrant,
    plan_tool,
    seal_plan,
)

ROOT = Path(__file__).parents[2]


def test_the_table_has_a_row_for_every_tool_and_for_those_only_the_server_knows() -> None:
    plan = seal_plan(
        agent="support",
        model=AnthropicModel(format="anthropic", model="m", max_tokens=1),
        model_provider_id=None,
        system_prompt=None,
        approvals=PlanApprovals(expires_seconds=60),
        grants=(
            SandboxPlanGrant(
                name="build",
                release="2026",
                network="none",
                default_policy="allow",
                tools=(plan_tool("sandbox", "build", "exec", "allow"),),
            ),
            McpPlanGrant(
                name="orders",
                url="https://mcp.example.com/orders",
                default_policy="require_approval",
                on_drift="require_approval",
                tools=(plan_tool("mcp", "orders", "delete_order", "deny"),),
            ),
        ),
    )

    rows = [line.split() for line in table_of(plan).splitlines()]

    assert [row[:2] for row in rows] == [
        ["TOOL", "POLICY"],
        ["mcp__orders__delete_order", "deny"],
        ["mcp__orders__(any", "other)"],
        ["sandbox__build__exec", "allow"],
    ]
    assert rows[2][2] == "require_approval"
    assert rows[3][-1] == "nothing"


def test_a_taken_port_stops_the_demo_before_anything_starts() -> None:
    with contextlib.ExitStack() as stack:
        # Taken by somebody else already is just as good.
        with contextlib.suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", PORT)))

        done = subprocess.run(
            [sys.executable, "-m", "scripts.demo"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.returncode == 3
    assert f"port {PORT} on 127.0.0.1 cannot be used" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
