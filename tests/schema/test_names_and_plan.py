"""Names split and join without loss; a plan says what it was sealed with; a secret stays one."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_bench import builtin_grant, make_plan, mcp_grant

from subako_ray.schema.canonical import canonical_bytes, parse_json
from subako_ray.schema.names import (
    BUILTIN_NAMES,
    KINDS,
    POLICIES,
    Policy,
    QualifiedName,
    is_grant_name,
    misfit,
    split_name,
    stricter,
)
from subako_ray.schema.plan import PlanError, load_plan
from subako_ray.schema.secret import Secret

GRANT_NAMES = st.from_regex(r"[a-z0-9-]{1,32}", fullmatch=True)


@given(
    st.sampled_from([kind for kind in KINDS if kind != "builtin"]), GRANT_NAMES, st.text(min_size=1)
)
def test_a_name_splits_into_what_it_was_made_of(kind: str, grant: str, tool: str) -> None:
    name = QualifiedName(kind, grant, tool)  # type: ignore[arg-type]
    assert split_name(str(name)) == name


@given(st.text())
def test_splitting_never_breaks_and_joins_back(text: str) -> None:
    name = split_name(text)
    assert name is None or str(name) == text


def test_n3_the_first_two_separators_split() -> None:
    assert split_name("mcp__orders__a__b") == QualifiedName("mcp", "orders", "a__b")
    assert split_name("mcp__orders____a") == QualifiedName("mcp", "orders", "__a")
    assert split_name("builtin__ask_user__ask") == QualifiedName("builtin", "ask_user", "ask")


@pytest.mark.parametrize(
    "text", ["", "mcp", "mcp__orders", "mcp__orders__", "mcp____x", "web__a__b", "mcp__o_rders__x"]
)
def test_what_is_no_tool_name_does_not_split(text: str) -> None:
    assert split_name(text) is None


@pytest.mark.parametrize("text", ["a\n", "\na", "A", "a_b", "", "a" * 33, "é", "a b", "a.b"])
def test_a_grant_name_is_matched_whole(text: str) -> None:
    assert not is_grant_name(text)


@given(st.sampled_from(POLICIES), st.sampled_from(POLICIES))
def test_the_stricter_policy_permits_no_more_than_either(one: Policy, other: Policy) -> None:
    order = ["allow", "require_approval", "deny"]
    assert order.index(stricter(one, other)) == max(order.index(one), order.index(other))


def test_n1_a_name_over_the_models_limit_is_a_misfit() -> None:
    name = str(QualifiedName("mcp", "g" * 32, "t" * 32))
    assert len(name) == 71
    assert misfit(name, "anthropic") is None
    assert misfit(name, "openai_responses") == "has 71 characters, `openai_responses` takes 64"
    assert misfit("mcp__a__b.c", "anthropic") is not None
    assert set(BUILTIN_NAMES) == {"ask_user", "session"}


def test_a_plan_reads_back_as_it_was_sealed() -> None:
    plan = make_plan(mcp_grant(delete="deny"), builtin_grant("session"))
    assert load_plan(plan.to_bytes()) == plan
    assert [(grant.kind, grant.name) for grant in plan.grants] == [
        ("builtin", "session"),
        ("mcp", "orders"),
    ]


def test_the_digest_does_not_depend_on_the_order_of_grants() -> None:
    one, two = mcp_grant("one"), mcp_grant("two")
    assert make_plan(one, two).to_bytes() == make_plan(two, one).to_bytes()


def test_a_plan_that_was_changed_is_refused_wherever_it_was_changed() -> None:
    value = parse_json(make_plan(mcp_grant(delete="deny")).to_bytes())
    assert isinstance(value, dict)
    changed = {**value, "grants": [{**value["grants"][0], "default_policy": "deny"}]}
    with pytest.raises(PlanError, match="changed after compiling"):
        load_plan(canonical_bytes(changed))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format":"subako.plan/2"}', b"\xff", b"{"])
def test_what_is_no_plan_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(PlanError) as refused:
        load_plan(data)
    assert "\n" not in str(refused.value)


def test_a_secret_is_never_shown_and_never_pickled() -> None:
    secret = Secret("canary")
    assert "canary" not in f"{secret} {secret!r} {[secret]} {secret:>20}" + str({"s": secret})
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert copy.deepcopy(secret) is secret
    assert Secret("a") != Secret("a")
    assert secret.reveal() == "canary"
