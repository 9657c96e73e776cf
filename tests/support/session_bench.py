"""Sessions without Ray: real log, catalogue and pipeline over sources a test scripts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from subako_ray.executor.approvals import Approvals
from subako_ray.executor.event_store import EventStore
from subako_ray.executor.forms import Forms
from subako_ray.executor.session import ClientRegistration, GrantSource, Session
from subako_ray.executor.session_log import SessionLog
from subako_ray.executor.sources.builtin import AskUserSource, SessionSource
from subako_ray.executor.sources.client import ClientDeadlines
from subako_ray.schema.events import Event
from subako_ray.schema.fixed_tools import BUILTIN_TOOLS
from subako_ray.schema.manifest import AnthropicModel
from subako_ray.schema.names import Policy
from subako_ray.schema.plan import (
    BuiltinPlanGrant,
    McpPlanGrant,
    Plan,
    PlanApprovals,
    PlanGrant,
    plan_tool,
    seal_plan,
)
from subako_ray.testing.scripted_source import ScriptedSource

PERSON = "user:ada"
E_ = TypeVar("E_", bound=Event)


def mcp_grant(name: str = "orders", default: Policy = "allow", **policies: Policy) -> McpPlanGrant:
    """Makes an MCP grant with these policies by tool name."""
    return McpPlanGrant(
        name=name,
        url=f"http://127.0.0.1:9/{name}",
        default_policy=default,
        on_drift="require_approval",
        tools=tuple(plan_tool("mcp", name, tool, policy) for tool, policy in policies.items()),
    )


def builtin_grant(name: str) -> BuiltinPlanGrant:
    """Makes the grant of a built-in as the compiler does."""
    return BuiltinPlanGrant(
        name=name,
        tools=tuple(
            plan_tool(
                "builtin",
                name,
                each.name,
                "allow",
                description=each.description,
                input_schema=each.input_schema,
            )
            for each in BUILTIN_TOOLS[name]
        ),
    )


def make_plan(*grants: PlanGrant, expires_seconds: int = 3600) -> Plan:
    """Makes a plan of these grants."""
    return seal_plan(
        agent="test",
        model=AnthropicModel(format="anthropic", model="claude-sonnet-5", max_tokens=1),
        model_provider_id=None,
        system_prompt=None,
        approvals=PlanApprovals(expires_seconds=expires_seconds),
        grants=grants,
    )


@dataclass(slots=True)
class Bench:
    """A session under test and its log."""

    session: Session
    store: EventStore
    client_ids: tuple[str, ...] = ()

    def events(self, kind: type[E_]) -> list[E_]:
        """All events of one type so far."""
        records = self.store.read("session_test")
        return [record.event for record in records if isinstance(record.event, kind)]

    def types(self) -> list[str]:
        """The types of all events so far, in order."""
        return [record.event.type for record in self.store.read("session_test")]

    async def until(self, kind: type[E_], count: int = 1) -> E_:
        """Waits until the log has so many events of a type, and returns the last."""
        async for _ in self.session.follow(0):
            found = self.events(kind)
            if len(found) >= count:
                return found[count - 1]
        raise AssertionError("the session has ended before")


OpenBench = Callable[..., Coroutine[Any, Any, Bench]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    """A real event store."""
    store = EventStore(tmp_path / "events.db")
    yield store
    store.close()


@pytest.fixture
def open_bench(store: EventStore) -> OpenBench:
    """Opens sessions of plans whose MCP grants are scripted sources."""

    async def opened(
        plan: Plan,
        *sources: ScriptedSource,
        clients: tuple[ClientRegistration, ...] = (),
        deadlines: ClientDeadlines | None = None,
    ) -> Bench:
        log = SessionLog(store, "session_test")
        forms = Forms(log)
        session = Session(
            plan=plan,
            log=log,
            approvals=Approvals(log, plan.approvals.expires_seconds),
            forms=forms,
            deadlines=deadlines,
        )
        by_name = {source.name: source for source in sources}
        pairs = []
        for grant in plan.grants:
            match grant:
                case BuiltinPlanGrant(name="ask_user"):
                    pairs.append(GrantSource(grant=grant, source=AskUserSource(grant.tools, forms)))
                case BuiltinPlanGrant():
                    pairs.append(GrantSource(grant=grant, source=SessionSource(grant.tools, log)))
                case _:
                    pairs.append(GrantSource(grant=grant, source=by_name[grant.name]))
        registered = await session.open(pairs, clients, (), PERSON)
        return Bench(session, store, tuple(client.client_id for client in registered))

    return opened
