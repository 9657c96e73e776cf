"""Sessions on a real Ray: the vault's credential reaches the server and appears nowhere else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from deployment import Site
from mcp_servers import Fault, faulty_server
from session_bench import builtin_grant, make_plan

from subako_ray.executor.approvals import Decided
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.session_host import SessionRequest
from subako_ray.schema.events import ApprovalRequested, CatalogueChanged, SessionEnded
from subako_ray.schema.manifest import LatestSkill
from subako_ray.schema.plan import (
    McpPlanGrant,
    Plan,
    PlanGrant,
    SandboxPlanGrant,
    SkillPlanGrant,
    StoredSkillReference,
)
from subako_ray.schema.secret import Secret
from subako_ray.vault.vaults import Vaults


def orders_plan(site: Site) -> Plan:
    """A plan whose one server is the site's; calls need approval."""
    return make_plan(
        McpPlanGrant(
            name="orders",
            url=site.orders.url,
            default_policy="require_approval",
            on_drift="require_approval",
            tools=(),
        ),
        builtin_grant("session"),
    )


def request(site: Site, plan: Plan, *vaults: str, principal: str | None = None) -> SessionRequest:
    """A request for a session by the site's principal."""
    return SessionRequest(
        plan=plan.to_bytes(), vaults=vaults, principal=principal or site.principal
    )


def files_with(folder: Path, needle: bytes) -> list[Path]:
    """Every file below the folder that holds the bytes."""
    found = []
    for path in folder.rglob("*"):
        try:
            if path.is_file() and needle in path.read_bytes():
                found.append(path)
        except OSError:
            continue
    return found


async def test_r3_a_credential_reaches_its_server_and_is_found_nowhere_else(site: Site) -> None:
    session = await site.cluster.create_session(request(site, orders_plan(site), "acme"))
    call = asyncio.create_task(session.call("mcp__orders__lookup", '{"order_id":"A-1001"}'))
    async for record in session.events():
        if isinstance(record.event, ApprovalRequested):
            assert record.event.credential is not None
            await session.decide(record.event.call_id, Decided(decision="allow"), site.principal)
            break
    outcome = await call
    await session.end(cancelled=False, requested_by=site.principal)
    assert outcome.status == "succeeded"
    assert "shipped" in outcome.text
    token = site.orders.token.encode()
    for folder in (site.state, site.cluster.log_folder, Path("/dev/shm")):
        assert files_with(folder, token) == [], folder
    # The search itself works: it finds what is there.
    assert files_with(site.state, outcome.text.split('"')[1].encode())


@pytest.mark.parametrize("fault", ["401", "403", "500", "garbage", "close"])
async def test_c4_a_failing_server_that_echoes_the_token_leaves_it_nowhere(
    site: Site, fault: Fault
) -> None:
    canary = f"canary-{fault}-5d1c0be2"
    with faulty_server(fault) as server:
        Vaults(site.state).add("echo", server.url, Secret(canary), principal=site.principal)
        plan = make_plan(
            McpPlanGrant(
                name="echo", url=server.url, default_policy="allow", on_drift="deny", tools=()
            )
        )
        session = await site.cluster.create_session(request(site, plan, "echo"))
        outcome = await session.call("mcp__echo__any", "{}")
        await session.end(cancelled=False, requested_by=site.principal)
        assert f"Bearer {canary}" in server.authorizations, "the token was not sent"
    assert outcome.status == "source_unavailable"
    assert canary not in outcome.model_dump_json()
    for folder in (site.state, site.cluster.log_folder, Path("/dev/shm")):
        assert files_with(folder, canary.encode()) == [], folder


async def test_without_a_vault_the_server_is_unavailable_and_the_rest_works(site: Site) -> None:
    session = await site.cluster.create_session(request(site, orders_plan(site)))
    (state,) = session.created.catalogue.unavailable
    assert state.source == "mcp:orders"
    assert "HTTP status 401" in state.reason
    assert "the session names no vault" in state.reason
    lookup = await session.call("mcp__orders__lookup", "{}")
    assert lookup.status == "source_unavailable"
    assert (await session.call("builtin__session__name", '{"name":"x"}')).status == "succeeded"
    await session.end(cancelled=False, requested_by=site.principal)


@pytest.mark.parametrize(
    ("vault", "principal", "code"),
    [
        ("none", None, "not_found"),
        ("acme", "user:mallory", "forbidden"),
        ("A B", None, "invalid_request"),
    ],
)
async def test_a_vault_that_is_not_there_or_not_theirs_makes_no_session(
    site: Site, vault: str, principal: str | None, code: str
) -> None:
    with pytest.raises(ExecutorError) as refused:
        await site.cluster.create_session(
            request(site, orders_plan(site), vault, principal=principal)
        )
    assert refused.value.code == code


SANDBOX = SandboxPlanGrant(
    name="build", release="2026", network="none", default_policy="allow", tools=()
)


@pytest.mark.parametrize(
    ("grant", "said"),
    [
        (
            SkillPlanGrant(
                name="tone",
                source=StoredSkillReference(skill_id="x", version=LatestSkill(type="latest")),
                tools=(),
            ),
            "skill `tone` is in a skill store",
        ),
        (
            SANDBOX.model_copy(update={"network": "unrestricted"}),
            "sandbox `build` asks for network",
        ),
        (SANDBOX.model_copy(update={"release": "1999"}), "release `1999`"),
    ],
)
async def test_a_plan_that_this_deployment_cannot_run_is_refused_by_name(
    site: Site, grant: PlanGrant, said: str
) -> None:
    with pytest.raises(ExecutorError, match=said) as refused:
        await site.cluster.create_session(request(site, make_plan(grant)))
    assert refused.value.code == "precondition_failed"


async def test_r2_errors_cross_as_plain_data_with_their_code(site: Site) -> None:
    session = await site.cluster.create_session(request(site, make_plan(builtin_grant("session"))))
    with pytest.raises(ExecutorError) as refused:
        await session.cancel("call_none", site.principal)
    assert (refused.value.code, "call_none" in refused.value.message) == ("not_found", True)
    with pytest.raises(ExecutorError) as changed:
        await site.cluster.create_session(
            SessionRequest(
                plan=make_plan().to_bytes().replace(b"test", b"evil"), principal=site.principal
            )
        )
    assert "changed after compiling" in changed.value.message
    await session.end(cancelled=False, requested_by=site.principal)


async def test_a_session_can_be_cancelled_and_its_log_ends(site: Site) -> None:
    session = await site.cluster.create_session(request(site, orders_plan(site), "acme"))
    held = asyncio.create_task(session.call("mcp__orders__lookup", '{"order_id":"A-1001"}'))
    seen = []
    async for record in session.events():
        seen.append(record.event)
        if isinstance(record.event, ApprovalRequested):
            await session.end(cancelled=True, requested_by=site.principal)
    assert (await held).status == "cancelled"
    assert isinstance(seen[-1], SessionEnded)
    assert any(isinstance(event, CatalogueChanged) for event in seen)
