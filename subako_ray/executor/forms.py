"""Questions put to a person: a form of flat fields, answered with accept, decline or cancel."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from subako_ray.executor.approvals import require_person
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.session_log import SessionLog
from subako_ray.schema.canonical import CanonicalError, canonical_bytes, parse_json
from subako_ray.schema.events import FormRefused, FormRequested, FormResolved
from subako_ray.schema.foreign_schema import SchemaNotUsableError, SchemaValidator

FormAction = Literal["accept", "decline", "cancel"]

_FIELD_TYPES: Final = frozenset({"string", "number", "integer", "boolean"})
_FORM_KEYS: Final = frozenset(
    {"$schema", "type", "title", "description", "properties", "required", "additionalProperties"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormAnswer:
    """What a person answered; `content` only with accept."""

    action: FormAction
    content: dict[str, Any] | None = field(default=None, repr=False)


@dataclass(slots=True)
class _Open:
    validator: SchemaValidator
    answer: asyncio.Future[FormAnswer]


class Forms:
    """The forms of one session, by the call that asked."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._open: dict[str, _Open] = {}
        self._answered: set[str] = set()

    async def ask(self, call_id: str, message: str, schema: dict[str, Any]) -> FormAnswer:
        """Puts a form to the person and waits for the answer.

        Raises:
            SchemaNotUsableError: when the schema is not one of flat fields.
        """
        validator = _form_validator(schema)
        answer: asyncio.Future[FormAnswer] = asyncio.get_running_loop().create_future()
        self._open[call_id] = _Open(validator, answer)
        try:
            self._log.append(FormRequested(call_id=call_id, message=message, form_schema=schema))
            return await answer
        finally:
            self._open.pop(call_id, None)

    def answer(
        self, call_id: str, action: FormAction, content: str | None, answered_by: str
    ) -> None:
        """Answers a form; an accept that does not fit is refused and the form stays open.

        Args:
            call_id: the call that asked.
            action: accept, decline or cancel.
            content: JSON object text, with accept only.
            answered_by: the person's principal.

        Raises:
            ExecutorError: `forbidden`, `not_found`, `conflict`, or `invalid_request` with the
                reason why the answer does not fit.
        """
        require_person(answered_by)
        form = self._open.get(call_id)
        if form is None or form.answer.done():
            if call_id in self._answered:
                raise ExecutorError("conflict", f"the form of call `{call_id}` was answered")
            raise ExecutorError("not_found", f"no form of call `{call_id}` is open")
        accepted: dict[str, Any] | None = None
        if action == "accept":
            accepted = self._accepted(form, call_id, content, answered_by)
        self._log.append(
            FormResolved(call_id=call_id, action=action, content=accepted, resolved_by=answered_by)
        )
        self._answered.add(call_id)
        form.answer.set_result(FormAnswer(action=action, content=accepted))

    def _accepted(
        self, form: _Open, call_id: str, content: str | None, answered_by: str
    ) -> dict[str, Any]:
        reason: str | None
        try:
            value = parse_json(content if content is not None else "{}")
            canonical_bytes(value)
        except CanonicalError as error:
            value, reason = None, str(error)
        else:
            reason = form.validator.problem(value)
            if reason is None and not isinstance(value, dict):
                reason = "the answer is not an object"
        if reason is not None or not isinstance(value, dict):
            shown = reason or "the answer is not an object"
            self._log.append(FormRefused(call_id=call_id, reason=shown, answered_by=answered_by))
            raise ExecutorError("invalid_request", f"the answer does not fit the form: {shown}")
        return value


def _form_validator(schema: dict[str, Any]) -> SchemaValidator:
    if schema.get("type") != "object":
        raise SchemaNotUsableError("a form's schema has `type: object`")
    unknown = sorted(schema.keys() - _FORM_KEYS)
    if unknown:
        raise SchemaNotUsableError(f"a form's schema has no `{unknown[0]}`")
    fields = schema.get("properties", {})
    if not isinstance(fields, dict) or not fields:
        raise SchemaNotUsableError("a form has at least one field in `properties`")
    for name, rule in fields.items():
        if not isinstance(rule, dict) or not _is_flat(rule):
            raise SchemaNotUsableError(f"the field `{name}` is not a flat field")
    try:
        return SchemaValidator({**schema, "additionalProperties": False})
    except SchemaNotUsableError as error:
        raise SchemaNotUsableError(f"its schema {error}") from None


def _is_flat(rule: dict[str, Any]) -> bool:
    if "$ref" in rule:
        return False
    if rule.get("type") == "array":
        items = rule.get("items")
        return isinstance(items, dict) and items.get("type") == "string" and "$ref" not in items
    return rule.get("type") in _FIELD_TYPES
