"""The script of `subako run --script`: calls, decisions, answers, and the outcomes expected."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from subako_ray.schema.outcome import Outcome, OutcomeStatus


class ScriptPart(BaseModel):
    """A mapping of the script: unknown keys are errors, values are never converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Deny(ScriptPart):
    """A denial with a message for the model."""

    deny: str = Field(min_length=1)


class Answer(ScriptPart):
    """The answer to a form."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class Expected(ScriptPart):
    """What an outcome must be; what is absent may be anything."""

    outcome: OutcomeStatus | None = None
    contains: str | None = Field(default=None, description="Text that the outcome's text holds.")


class Entry(ScriptPart):
    """One call."""

    call: str
    arguments: dict[str, Any] | None = None
    note: str | None = Field(default=None, description="Printed before the call.")
    decide: Literal["allow", "deny"] | Deny | None = None
    answer: Answer | None = None
    expect: Expected | None = None


class Script(ScriptPart):
    """Calls to make one after the other."""

    calls: Annotated[list[Entry], Field(min_length=1)]


def unexpected(entry: Entry, outcome: Outcome) -> list[str]:
    """Says how an outcome differs from what the entry expects: `succeeded` unless it says more."""
    expected = entry.expect or Expected()
    problems = []
    status = expected.outcome or "succeeded"
    if outcome.status != status:
        problems.append(f"ended as {outcome.status}, expected {status}")
    if expected.contains is not None and expected.contains not in outcome.text:
        problems.append(f"its text does not contain `{expected.contains}`")
    return problems
