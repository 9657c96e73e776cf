"""What a session host and a sandbox host keep of sessions that ended, failed, or ended too soon."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from host_bench import CountingCredentials, CountingSandboxes, Host, request
from session_bench import PERSON, builtin_grant, make_plan, mcp_grant

from subako_ray.executor import sandbox_host
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.sandbox_host import SandboxHost
from subako_ray.executor.session_host import SessionHost
from subako_ray.sandbox.function import FunctionRunner
from subako_ray.schema.bundle import BundleFile, pack
from subako_ray.schema.events import SessionEnded
from subako_ray.schema.fixed_tools import SKILL_READ
from subako_ray.schema.plan import (
    BundledSkill,
    FunctionPlanGrant,
    PlanFunctionLimits,
    SkillPlanGrant,
    plan_tool,
)

PACKAGE = pack([BundleFile(path="main.py", data=b"")])
SKILL = pack([BundleFile(path="SKILL.md", data=b"the skill")])


def function_grant() -> FunctionPlanGrant:
    """The grant of a package."""
    return FunctionPlanGrant(
        name="anydoc",
        bundle=PACKAGE.digest,
        command=("python3", "main.py"),
        protocol_version=None,
        default_policy="allow",
        on_drift="require_approval",
        origins=(),
        limits=PlanFunctionLimits(timeout_seconds=1, memory_mib=64, processes=8),
        tools=(),
    )


async def test_an_ended_session_is_forgotten_and_its_log_can_still_be_followed(host: Host) -> None:
    created = await host.sessions.create(request(make_plan(builtin_grant("session")), "acme"))
    session_id = created.session_id
    await host.sessions.end(session_id, cancelled=False, requested_by=PERSON)
    with pytest.raises(ExecutorError, match="has ended") as ended:
        host.sessions.session(session_id)
    assert ended.value.code == "precondition_failed"
    async with asyncio.timeout(5):
        records = [r async for batch in host.sessions.follow(session_id, 0) for r in batch]
        nothing = [batch async for batch in host.sessions.follow(session_id, len(records))]
    assert isinstance(records[-1].event, SessionEnded)
    assert nothing == []
    assert host.credentials.closed == host.sandboxes.ended == [session_id]


async def test_a_session_that_cannot_be_made_gives_its_capability_back(host: Host) -> None:
    plan = make_plan(mcp_grant(), function_grant())
    with pytest.raises(ExecutorError, match="cannot isolate"):
        await host.sessions.create(
            request(plan, "acme", **{PACKAGE.digest.removeprefix("sha256:"): PACKAGE.data})
        )
    ((session_id, *_),) = host.credentials.opened
    assert host.credentials.closed == [session_id]


async def test_a_lost_sandbox_host_does_not_keep_a_sessions_credentials_open(
    tmp_path: Path,
) -> None:
    class Gone(CountingSandboxes):
        async def end(self, session_id: str) -> None:
            raise ConnectionError

    async def no_functions() -> FunctionRunner:
        raise AssertionError

    credentials = CountingCredentials()
    sessions = SessionHost(
        tmp_path, functions=no_functions, sandboxes=Gone(), credentials=credentials
    )
    created = await sessions.create(request(make_plan(), "acme"))
    with pytest.raises(ConnectionError):
        await sessions.end(created.session_id, cancelled=False, requested_by=PERSON)
    assert credentials.closed == [created.session_id]


async def test_a_plan_that_names_a_grant_or_tool_twice_or_wrongly_makes_no_session(
    host: Host,
) -> None:
    twice = mcp_grant(send="deny")
    tools = (*twice.tools, plan_tool("mcp", "orders", "send", "allow"))
    for plan in (
        make_plan(mcp_grant(send="deny"), mcp_grant(send="allow")),
        make_plan(twice.model_copy(update={"tools": tools})),
        make_plan(mcp_grant("a__b", default="allow")),
    ):
        with pytest.raises(ExecutorError) as refused:
            await host.sessions.create(request(plan))
        assert refused.value.code == "invalid_request"


async def test_a_plan_that_lists_files_outside_its_skill_makes_no_session(
    host: Host, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    for path in ("../../secret", str(secret), "a/../../../secret"):
        grant = SkillPlanGrant(
            name="notes",
            source=BundledSkill(bundle=SKILL.digest, description="", files=("SKILL.md", path)),
            tools=(
                plan_tool("skill", "notes", "read", "allow", input_schema=SKILL_READ.input_schema),
            ),
        )
        with pytest.raises(ExecutorError) as refused:
            await host.sessions.create(
                request(make_plan(grant), **{SKILL.digest.removeprefix("sha256:"): SKILL.data})
            )
        assert refused.value.code == "invalid_request"


class SlowMachine:
    """A machine that takes its time to start, as a real one does."""

    alive = True

    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        """Counts."""
        self.closed += 1


async def test_a_sandbox_that_starts_while_its_session_ends_is_ended_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starting, go_on, machine = asyncio.Event(), asyncio.Event(), SlowMachine()

    class Machines:
        @staticmethod
        async def start(jailer: object, limits: object) -> SlowMachine:
            starting.set()
            await go_on.wait()
            return machine

    monkeypatch.setattr(sandbox_host, "Machine", Machines)
    monkeypatch.setattr(sandbox_host, "MachineLimits", object)
    sandboxes = SandboxHost(None)  # type: ignore[arg-type]
    start = asyncio.create_task(sandboxes.start("session_1", "build"))
    await starting.wait()
    end = asyncio.create_task(sandboxes.end("session_1"))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(start, end)
    assert machine.closed == 1
