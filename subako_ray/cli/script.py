"""The script of `subako run --script`: calls, decisions, answers, and the outcomes expected."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from subako_ray.cli.command import CommandError, ExitCode
from subako_ray.compiler.read_text import decode, parse
from subako_ray.compiler.source import Source, Span
from subako_ray.compiler.tree import Mapping, Node, step, to_data
from subako_ray.schema.outcome import Outcome, OutcomeStatus
from subako_ray.schema.printable import printable


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


def read_script(path: Path) -> Script:
    """Reads a script.

    Raises:
        CommandError: with line and column of what is wrong.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CommandError(
            f"the script `{path}` cannot be read: {error.strerror}", code=ExitCode.USAGE
        ) from None
    source, problem = decode(str(path), data)
    if problem is not None:
        raise _wrong(source, problem.primary.span, problem.message)
    tree, problems = parse(source)
    if problems:
        raise _wrong(source, problems[0].primary.span, problems[0].message)
    if tree is None:
        raise _wrong(source, source.span(0, 0), "the script is empty")
    try:
        return Script.model_validate(to_data(tree))
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_input=False)
        # A misspelt key is also a missing one; the first is what the author can see.
        first = next((one for one in mistakes if one["type"] == "extra_forbidden"), mistakes[0])
        raise _mistake(source, tree, first["type"], first["loc"]) from None


def _mistake(source: Source, tree: Node, kind: str, route: tuple[str | int, ...]) -> CommandError:
    """Words a pydantic error, whose own text is for programmers, with the place it is about."""
    node, last, key = tree, "", None
    for way in route:
        # A route also names the branches of unions, which are neither keys nor indices here.
        child = step(node, way)
        if child is None:
            if kind == "missing" and isinstance(way, str):
                last = way
            continue
        if isinstance(node, Mapping) and isinstance(way, str):
            entry = node.entry(way)
            last, key = way, entry.key if entry is not None else None
        node = child
    match kind:
        case "extra_forbidden":
            close = difflib.get_close_matches(last, _KEYS, 1)
            hint = f", did you mean `{close[0]}`?" if close else ""
            return _wrong(source, key or node.span, f"unknown key `{last}`{hint}")
        case "missing":
            return _wrong(source, node.span, f"the key `{last}` is missing here")
        case _ if last in _VALUES:
            return _wrong(source, node.span, f"`{last}` must be {_VALUES[last]}")
        case _:
            return _wrong(source, node.span, "a script is a mapping with the key `calls`")


def _wrong(source: Source, span: Span, message: str) -> CommandError:
    place = source.position(span.start)
    return CommandError(
        f"{source.path}:{place.line}:{place.column}: {printable(message)}",
        "`subako run --help` shows what a script can hold",
        ExitCode.PROBLEMS,
    )


_VALUES: Final = {
    "calls": "a list of at least one call",
    "call": "the name of a tool, as text",
    "arguments": "a mapping",
    "note": "text",
    "decide": '`allow`, `deny` or `{deny: "a message"}`',
    "deny": "a message for the model, as text",
    "answer": "a mapping with `action` and perhaps `content`",
    "action": "`accept`, `decline` or `cancel`",
    "content": "a mapping",
    "expect": "a mapping with `outcome` or `contains`",
    "outcome": "one of " + ", ".join(f"`{status}`" for status in get_args(OutcomeStatus)),
    "contains": "text",
}
"""What the value of each key can be."""

_KEYS: Final = tuple(_VALUES)


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
