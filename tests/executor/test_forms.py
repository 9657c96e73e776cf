"""Forms: a question to the person, and the answers that fit it or not."""

from __future__ import annotations

import asyncio
import json

import pytest
from session_bench import PERSON, Bench, OpenBench, builtin_grant, make_plan

from subako_ray.executor.errors import ExecutorError
from subako_ray.schema.events import FormRefused, FormRequested, FormResolved
from subako_ray.schema.outcome import Outcome

FORM = {
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 1}, "gift": {"type": "boolean"}},
    "required": ["size"],
}


async def ask(bench: Bench, schema: object = FORM) -> tuple[asyncio.Task[Outcome], str]:
    """Asks and returns the waiting call and its id."""
    text = json.dumps({"message": "Which size?", "schema": schema})
    asking = asyncio.create_task(bench.session.call("builtin__ask_user__ask", text, "engine"))
    return asking, (await bench.until(FormRequested)).call_id


async def test_an_accepted_answer_is_the_result(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan(builtin_grant("ask_user")))
    asking, call_id = await ask(bench)
    bench.session.answer(call_id, "accept", '{"size": 3}', PERSON)
    outcome = await asking
    assert outcome.structured == {"action": "accept", "content": {"size": 3}}
    (resolved,) = bench.events(FormResolved)
    assert resolved.resolved_by == PERSON


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a5_decline_and_cancel_are_complete_without_content(
    open_bench: OpenBench, action: str
) -> None:
    bench = await open_bench(make_plan(builtin_grant("ask_user")))
    asking, call_id = await ask(bench)
    bench.session.answer(call_id, action, None, PERSON)  # type: ignore[arg-type]
    assert (await asking).structured == {"action": action}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "required"),
        ("{}", "required"),
        ('{"size": 1, "extra": 2}', "additionalProperties"),
        ('{"size": 1e999}', "too large"),
        ('{"size": 0}', "minimum"),
        ('{"size": "1"}', "type"),
        ("[]", "type"),
        ("nonsense", "not JSON"),
    ],
)
async def test_a5_an_accept_that_does_not_fit_keeps_the_form_open_with_the_reason(
    open_bench: OpenBench, content: str | None, reason: str
) -> None:
    bench = await open_bench(make_plan(builtin_grant("ask_user")))
    asking, call_id = await ask(bench)
    with pytest.raises(ExecutorError, match=reason) as refused:
        bench.session.answer(call_id, "accept", content, PERSON)
    assert refused.value.code == "invalid_request"
    assert not asking.done()
    (event,) = bench.events(FormRefused)
    assert reason in event.reason
    bench.session.answer(call_id, "accept", '{"size": 2}', PERSON)
    assert (await asking).status == "succeeded"


async def test_a_form_is_answered_once_and_by_a_person(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan(builtin_grant("ask_user")))
    asking, call_id = await ask(bench)
    with pytest.raises(ExecutorError) as refused:
        bench.session.answer(call_id, "decline", None, "engine")
    assert refused.value.code == "forbidden"
    bench.session.answer(call_id, "decline", None, PERSON)
    with pytest.raises(ExecutorError) as again:
        bench.session.answer(call_id, "accept", '{"size": 1}', PERSON)
    assert again.value.code == "conflict"
    with pytest.raises(ExecutorError) as unknown:
        bench.session.answer("call_none", "decline", None, PERSON)
    assert unknown.value.code == "not_found"
    assert (await asking).structured == {"action": "decline"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}},
        {"type": "object", "properties": {"a": {"type": "string", "$ref": "file:///etc/passwd"}}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "$defs": {}},
        {"type": "object", "properties": {"a": True}},
    ],
)
async def test_a_form_that_cannot_be_shown_is_the_tools_error(
    open_bench: OpenBench, schema: object
) -> None:
    bench = await open_bench(make_plan(builtin_grant("ask_user")))
    text = json.dumps({"message": "?", "schema": schema})
    outcome = await bench.session.call("builtin__ask_user__ask", text, "engine")
    assert (outcome.status, outcome.reason) == ("tool_failed", "form_not_usable")


async def test_a_cancelled_question_cannot_be_answered_any_more(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan(builtin_grant("ask_user")))
    asking, call_id = await ask(bench)
    bench.session.cancel(call_id, PERSON)
    assert (await asking).status == "cancelled"
    with pytest.raises(ExecutorError):
        bench.session.answer(call_id, "decline", None, PERSON)


async def test_the_session_can_be_named(open_bench: OpenBench) -> None:
    bench = await open_bench(make_plan(builtin_grant("session")))
    outcome = await bench.session.call("builtin__session__name", '{"name": "Refund"}', "engine")
    assert outcome.status == "succeeded"
    assert "session_named" in bench.types()
