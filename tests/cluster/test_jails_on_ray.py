"""Functions and sandboxes of sessions on a real Ray, with real jails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from deployment import Site
from isolation import limits_mode
from processes import appeared, descendants, gone, processes_of
from session_bench import make_plan

from subako_ray.cli.compile import bundle_file
from subako_ray.executor.cluster import SessionHandle
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.session_host import SessionRequest
from subako_ray.schema.bundle import BundleFile, pack
from subako_ray.schema.events import CallDispatched, CallRequested, Record, SandboxChanged
from subako_ray.schema.fixed_tools import SANDBOX_EXEC
from subako_ray.schema.plan import (
    FunctionPlanGrant,
    PlanFunctionLimits,
    PlanGrant,
    SandboxPlanGrant,
    plan_tool,
)

PACKAGE = pack(
    [
        BundleFile(
            path="main.py",
            data=b"""
import os, subprocess, sys
from subako_function import serve, tool



@tool
def first() -> str:
    "Leaves a file behind and says what it found."
    found = sorted(os.listdir("/tmp"))
    open("/tmp/left", "w").close()
    return f"found {found}"

@tool
def hang(marker: str) -> str:
    "Never answers, and has a child that left its session."
    subprocess.Popen(["/bin/sleep", marker], start_new_session=True)
    subprocess.run(["/bin/sleep", marker])
    return "woke up"

serve()
""",
        )
    ]
)
ANY = {"type": "object"}


def function_grant(timeout_seconds: int = 20, **changes: object) -> FunctionPlanGrant:
    """The grant of the package above."""
    grant = FunctionPlanGrant(
        name="box",
        bundle=PACKAGE.digest,
        command=("python3", "main.py"),
        protocol_version="2026-07-28",
        default_policy="allow",
        on_drift="allow",
        origins=(),
        limits=PlanFunctionLimits(timeout_seconds=timeout_seconds, memory_mib=128, processes=16),
        tools=tuple(
            plan_tool("fn", "box", name, "allow", input_schema=ANY) for name in ("first", "hang")
        ),
    )
    return grant.model_copy(update=changes)


SANDBOX = SandboxPlanGrant(
    name="build",
    release="2026",
    network="none",
    default_policy="allow",
    tools=(plan_tool("sandbox", "build", "exec", "allow", input_schema=SANDBOX_EXEC.input_schema),),
)


async def session_of(site: Site, *grants: PlanGrant) -> SessionHandle:
    """Makes a session of these grants."""
    return await site.cluster.create_session(
        SessionRequest(
            plan=make_plan(*grants).to_bytes(),
            bundles={PACKAGE.digest: PACKAGE.data},
            principal=site.principal,
        )
    )


async def test_b5_calls_of_a_function_see_nothing_of_each_other(site: Site) -> None:
    session = await session_of(site, function_grant())
    outcomes = await asyncio.gather(*(session.call("fn__box__first", "{}") for _ in range(4)))
    assert [outcome.text for outcome in outcomes] == ["found []"] * 4
    await session.end(cancelled=False, requested_by=site.principal)


async def test_a_function_over_its_time_ends_and_leaves_nothing(site: Site) -> None:
    session = await session_of(site, function_grant(timeout_seconds=1))
    outcome = await session.call("fn__box__hang", '{"marker":"300.101"}')
    assert outcome.status == "timed_out"
    assert "box" in outcome.text
    assert await gone("300.101")
    await session.end(cancelled=False, requested_by=site.principal)


async def test_cancelling_a_function_call_kills_its_jail(site: Site) -> None:
    session = await session_of(site, function_grant())
    call = asyncio.create_task(session.call("fn__box__hang", '{"marker":"300.102"}'))
    assert await appeared("300.102", 2)
    async for record in session.events():
        if isinstance(record.event, CallDispatched):
            await session.cancel(record.event.call_id, site.principal)
            break
    assert (await call).status == "cancelled"
    assert await gone("300.102")
    await session.end(cancelled=False, requested_by=site.principal)


async def test_a_sandbox_keeps_files_and_background_processes_and_ends_with_its_session(
    site: Site,
) -> None:
    session = await session_of(site, SANDBOX)

    async def run(command: str, **more: object) -> str:
        text = json.dumps({"command": command, **more})
        return (await session.call("sandbox__build__exec", text)).text

    assert await run("echo kept > note; /bin/sleep 300.103 & echo started") == "started"
    assert await run("cat note") == "kept"
    assert len(processes_of("300.103")) == 1
    assert "[killed after" in await run("/bin/sleep 300.104", timeout_seconds=1)
    assert processes_of("300.104") == []
    assert await run("exit 3") == "[exit code 3]"
    await session.end(cancelled=False, requested_by=site.principal)
    assert await gone("300.103")
    events = [record.event async for record in session.events()]
    assert [e.status for e in events if isinstance(e, SandboxChanged)] == ["running"]


async def test_cancelling_an_exec_kills_that_command_only(site: Site) -> None:
    session = await session_of(site, SANDBOX)
    background = '{"command":"/bin/sleep 300.105 & echo ok"}'
    assert (await session.call("sandbox__build__exec", background)).text == "ok"
    call = asyncio.create_task(
        session.call("sandbox__build__exec", '{"command":"/bin/sleep 300.106"}')
    )
    assert await appeared("300.106", 1)
    requested = [
        record.event
        for record in await first_records(session, 10)
        if isinstance(record.event, CallRequested)
    ]
    await session.cancel(requested[-1].call_id, site.principal)
    assert (await call).status == "cancelled"
    assert await gone("300.106")
    assert len(processes_of("300.105")) == 1
    await session.end(cancelled=False, requested_by=site.principal)


async def first_records(session: SessionHandle, count: int) -> list[Record]:
    """Reads the first records of a log."""
    records: list[Record] = []
    async for record in session.events():
        records.append(record)
        if len(records) == count:
            break
    return records


async def test_a_function_with_origins_is_refused_until_there_is_egress(site: Site) -> None:
    with pytest.raises(ExecutorError, match="function `box` names origins"):
        await session_of(site, function_grant(origins=("https://api.example.com",)))


async def test_a_plan_without_its_bundle_makes_no_session(site: Site) -> None:
    missing = "sha256:" + "0" * 64
    with pytest.raises(ExecutorError, match=missing):
        await session_of(site, function_grant(bundle=missing))


async def test_a_bundle_that_is_not_what_its_digest_says_is_refused(site: Site) -> None:
    other = pack([BundleFile(path="main.py", data=b"print('evil')")])
    grant = function_grant(bundle="sha256:" + "1" * 64)
    with pytest.raises(ExecutorError) as refused:
        await site.cluster.create_session(
            SessionRequest(
                plan=make_plan(grant).to_bytes(),
                bundles={grant.bundle: other.data},
                principal=site.principal,
            )
        )
    assert refused.value.code == "invalid_request"


@pytest.mark.parametrize(
    ("actor", "call", "arguments", "marker", "count"),
    [
        ("SessionHostActor", "fn__box__hang", {"marker": "300.107"}, "300.107", 2),
        (
            "SandboxHostActor",
            "sandbox__build__exec",
            {"command": "/bin/sleep 300.108"},
            "300.108",
            1,
        ),
    ],
)
async def test_b8_a_killed_worker_takes_its_jails_with_it(
    tmp_path: Path, actor: str, call: str, arguments: dict[str, str], marker: str, count: int
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(make_plan(function_grant(), SANDBOX).to_bytes())
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles" / bundle_file(PACKAGE.digest)).write_bytes(PACKAGE.data)
    command = [
        sys.executable,
        "-m",
        "subako_ray.cli.main",
        "run",
        str(plan),
        "--limits",
        limits_mode(),
    ]
    options = ["--state", str(tmp_path / "state"), "--call", call, json.dumps(arguments)]
    run = await asyncio.create_subprocess_exec(
        *command, *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        assert await appeared(marker, count, 40)
        workers = [pid for pid, line in descendants(run.pid).items() if f"ray::{actor}" in line]
        assert workers
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        assert await gone(marker)
        async with asyncio.timeout(60):
            output, _ = await run.communicate()
    finally:
        if run.returncode is None:
            run.kill()
    assert run.returncode in (1, 3)
    assert b"Traceback" not in output
