"""`call.function`: a call in a fresh jail through a session on Ray, beside the bare jail."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.figure import Figure, Sides
from subako_ray.executor.cluster import Cluster
from subako_ray.executor.session_host import SessionRequest
from subako_ray.sandbox.spec import IsolationSettings
from subako_ray.schema import limits
from subako_ray.schema.bundle import Bundle, BundleFile, pack
from subako_ray.schema.manifest import AnthropicModel
from subako_ray.schema.plan import (
    FunctionPlanGrant,
    Plan,
    PlanApprovals,
    PlanFunctionLimits,
    plan_tool,
    seal_plan,
)
from subako_ray.vault.principal import current_principal

PROGRAM: Final = """
from subako_function import serve, tool

@tool
def add(a: int, b: int) -> dict[str, int]:
    "Adds two integers."
    return {"sum": a + b}

serve()
"""
SCHEMA: Final = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


def plan_of(bundle: Bundle) -> Plan:
    """Returns a plan whose only grant is the package."""
    grant = FunctionPlanGrant(
        name="bench",
        bundle=bundle.digest,
        command=("python3", "main.py"),
        protocol_version="2026-07-28",
        default_policy="allow",
        on_drift="require_approval",
        origins=(),
        limits=PlanFunctionLimits(
            timeout_seconds=limits.FUNCTION_TIMEOUT_SECONDS,
            memory_mib=limits.FUNCTION_MEMORY_MIB,
            processes=limits.FUNCTION_PROCESSES,
        ),
        tools=(plan_tool("fn", "bench", "add", "allow", input_schema=SCHEMA),),
    )
    return seal_plan(
        agent=None,
        model=AnthropicModel(format="anthropic", model="none", max_tokens=0),
        model_provider_id=None,
        system_prompt=None,
        approvals=PlanApprovals(expires_seconds=60),
        grants=(grant,),
    )


@contextmanager
def bare_jails(package: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts the process that runs the peer's jails."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.bare_jail", package],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def sides() -> Iterator[Sides]:
    """A session on a Ray of this machine, and a process that runs bare jails."""
    bundle = pack([BundleFile(path="main.py", data=PROGRAM.encode())])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        package, state = folder / "package", folder / "state"
        package.mkdir()
        state.mkdir(mode=0o700)
        (package / "main.py").write_text(PROGRAM)
        peer = stack.enter_context(bare_jails(package))
        runner = stack.enter_context(asyncio.Runner())
        cluster = runner.run(Cluster.connect(state, IsolationSettings()))
        stack.callback(lambda: runner.run(cluster.close()))
        session = runner.run(
            cluster.create_session(
                SessionRequest(
                    plan=plan_of(bundle).to_bytes(),
                    bundles={bundle.digest: bundle.data},
                    vaults=(),
                    clients=(),
                    principal=current_principal(),
                )
            )
        )

        def ours() -> None:
            outcome = runner.run(session.call("fn__bench__add", '{"a":2,"b":3}'))
            assert outcome.structured == {"sum": 5}, outcome

        def bare() -> None:
            assert peer.stdin is not None
            assert peer.stdout is not None
            peer.stdin.write("run\n")
            peer.stdin.flush()
            assert peer.stdout.readline() == "done\n", "the bare jail failed: see its message above"

        yield Sides(ours=ours, peer=bare)


FIGURE: Final = Figure(name="call.function", limit=2.0, unit="ratio", runs=41, sides=sides)
