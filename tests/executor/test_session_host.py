"""The session host without Ray: what it refuses, what it makes, and what ends with a session."""

from __future__ import annotations

import pytest
from host_bench import CountingSandboxes, Host, request
from session_bench import PERSON, builtin_grant, make_plan, mcp_grant

from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.sandbox_host import ExecFailed
from subako_ray.executor.session_host import targets_of
from subako_ray.schema.bundle import BundleFile, pack
from subako_ray.schema.events import SandboxChanged
from subako_ray.schema.fixed_tools import SANDBOX_EXEC, SKILL_READ
from subako_ray.schema.plan import (
    BundledSkill,
    McpPlanGrant,
    SandboxPlanGrant,
    SkillPlanGrant,
    plan_tool,
)

SKILL = pack([BundleFile(path="SKILL.md", data=b"the skill")])


def sandbox_grant() -> SandboxPlanGrant:
    """The grant of a sandbox."""
    return SandboxPlanGrant(
        name="build",
        release="2026",
        network="none",
        default_policy="allow",
        tools=(
            plan_tool("sandbox", "build", "exec", "allow", input_schema=SANDBOX_EXEC.input_schema),
        ),
    )


async def test_a_session_may_ask_its_vaults_for_the_targets_of_its_plan_only(host: Host) -> None:
    url = "HTTP://127.0.0.1:80/mcp"
    grant = mcp_grant().model_copy(update={"url": url})
    created = await host.sessions.create(request(make_plan(grant), "acme", "other"))
    ((session_id, vaults, targets, principal),) = host.credentials.opened
    assert (session_id, vaults, principal) == (created.session_id, ("acme", "other"), PERSON)
    assert targets == {"http://127.0.0.1/mcp"}
    await host.sessions.end(session_id, cancelled=False, requested_by=PERSON)
    assert host.credentials.closed == [session_id]
    assert host.sandboxes.ended == [session_id]


def test_the_targets_are_those_of_the_plans_servers() -> None:
    grants = [
        McpPlanGrant(name=name, url=url, default_policy="allow", on_drift="deny", tools=())
        for name, url in (("a", "https://H:443/x"), ("b", "https://h/x"), ("c", "https://h/y"))
    ]
    assert targets_of(make_plan(*grants)) == {"https://h/x", "https://h/y"}


async def test_a_skill_is_read_from_the_bundle_that_came_with_the_plan(host: Host) -> None:
    grant = SkillPlanGrant(
        name="tone",
        source=BundledSkill(bundle=SKILL.digest, description="d", files=("SKILL.md",)),
        tools=(plan_tool("skill", "tone", "read", "allow", input_schema=SKILL_READ.input_schema),),
    )
    plan = make_plan(grant)
    with pytest.raises(ExecutorError, match="is not here"):
        await host.sessions.create(request(plan))
    bundle = {SKILL.digest.removeprefix("sha256:"): SKILL.data}
    created = await host.sessions.create(request(plan, **bundle))
    session = host.sessions.session(created.session_id)
    outcome = await session.call("skill__tone__read", '{"path":"SKILL.md"}', "engine")
    assert outcome.text == "the skill"
    # The host keeps it: the next session needs no bundle.
    await host.sessions.create(request(plan))


async def test_a_command_of_a_sandbox_is_told_with_what_was_cut(host: Host) -> None:
    created = await host.sessions.create(request(make_plan(sandbox_grant())))
    session = host.sessions.session(created.session_id)
    outcome = await session.call("sandbox__build__exec", '{"command":"x"}', "engine")
    assert outcome.text == "out\ufffd\n[stdout cut: 5 bytes more]"
    assert outcome.structured["exit_code"] == 0
    assert outcome.cut_bytes == 5
    assert host.sandboxes.executed[0].timeout_seconds == 120
    for wrong in ("{}", '{"command":""}', '{"command":"x","timeout_seconds":0}', '{"cmd":"x"}'):
        refused = await session.call("sandbox__build__exec", wrong, "engine")
        assert refused.reason == "invalid_arguments"
    assert len(host.sandboxes.executed) == 1


async def test_a_lost_sandbox_is_unknown_and_the_log_says_that_its_files_are_gone(
    host: Host,
) -> None:
    created = await host.sessions.create(request(make_plan(sandbox_grant())))
    session = host.sessions.session(created.session_id)
    host.sandboxes.exec_reply = ExecFailed(kind="lost", message="out of memory")
    outcome = await session.call("sandbox__build__exec", '{"command":"x"}', "engine")
    assert (outcome.status, outcome.reason) == ("unknown", "sandbox_lost")
    host.sandboxes.exec_reply = CountingSandboxes().exec_reply
    assert (
        await session.call("sandbox__build__exec", '{"command":"x"}', "engine")
    ).status == "succeeded"
    changes = [
        (record.event.status, record.event.detail)
        for record in await anext(session.follow(0))
        if isinstance(record.event, SandboxChanged)
    ]
    assert changes == [
        ("running", None),
        ("failed", "out of memory"),
        ("running", "a new sandbox; the files of the last one are lost"),
    ]


async def test_a_host_that_cannot_make_a_sandbox_says_so_and_ran_nothing(host: Host) -> None:
    host.sandboxes.start_reply = ExecFailed(kind="unavailable", message="no memory cgroup")
    created = await host.sessions.create(request(make_plan(sandbox_grant())))
    session = host.sessions.session(created.session_id)
    outcome = await session.call("sandbox__build__exec", '{"command":"x"}', "engine")
    assert (outcome.status, outcome.text) == (
        "source_unavailable",
        "sandbox `build`: no memory cgroup",
    )
    assert host.sandboxes.executed == []


async def test_more_than_ten_vaults_are_refused(host: Host) -> None:
    with pytest.raises(ExecutorError, match="at most 10 vaults"):
        await host.sessions.create(request(make_plan(), *[f"v{i}" for i in range(11)]))


async def test_an_unknown_session_is_not_found(host: Host) -> None:
    with pytest.raises(ExecutorError) as refused:
        host.sessions.session("session_none")
    assert refused.value.code == "not_found"


async def test_sessions_of_one_host_do_not_mix(host: Host) -> None:
    plan = make_plan(builtin_grant("session"))
    one = await host.sessions.create(request(plan))
    two = await host.sessions.create(request(plan))
    await host.sessions.session(one.session_id).call("builtin__session__name", '{"name":"1"}', "e")
    await host.sessions.end(one.session_id, cancelled=False, requested_by=PERSON)
    outcome = await host.sessions.session(two.session_id).call(
        "builtin__session__name", '{"name":"2"}', "e"
    )
    assert outcome.status == "succeeded"
