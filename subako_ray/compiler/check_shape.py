"""Whether a tree has the shape of a pydantic type, and what is wrong with it in our words.

Pydantic decides; its errors are mapped by their type to messages of ours, each at the place of the
key or value it is about. What pydantic says in words is never shown.
"""

from __future__ import annotations

from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from subako_ray.compiler.diagnostic import Diagnostic, Fix, problem
from subako_ray.compiler.locate import Place, describe, locate, tags_of, words_of
from subako_ray.compiler.source import Span
from subako_ray.compiler.tree import Mapping, Node, Scalar, to_data
from subako_ray.compiler.wording import choice, nearest, quoted, what_is
from subako_ray.schema.manifest import UUID_PATTERN
from subako_ray.schema.names import GRANT_NAME_PATTERN

ModelT = TypeVar("ModelT", bound=BaseModel)

_FORMS: Final = {
    GRANT_NAME_PATTERN: "1 to 32 lower-case letters, digits and hyphens",
    UUID_PATTERN: "a UUID such as `0190b2c4-7d1e-7abc-8def-0123456789ab`",
}
_TYPES: Final = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "`true` or `false`",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


class Checked(NamedTuple, Generic[ModelT]):
    """The typed value, or why there is none."""

    value: ModelT | None
    diagnostics: list[Diagnostic]


def check_shape(model: type[ModelT], tree: Node, whole: str) -> Checked[ModelT]:
    """Makes a typed value of a tree.

    Args:
        model: the type.
        tree: what was read.
        whole: what the tree is, for messages: "the manifest".
    """
    try:
        return Checked(model.model_validate(to_data(tree), strict=True), [])
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
    errors = [
        _Error(
            place=locate(model, tree, one["loc"]),
            kind=one["type"],
            context=one.get("ctx", {}),
            last=str(one["loc"][-1]) if one["loc"] else "",
        )
        for one in found
    ]
    misspelt = {
        (error.place.route[:-1], _meant(error.place))
        for error in errors
        if error.kind == "extra_forbidden"
    }
    return Checked(
        None,
        [
            _explain(error, whole)
            for error in errors
            # A key that is missing because it is misspelt is one mistake.
            if error.kind != "missing" or (error.place.route, error.last) not in misspelt
        ],
    )


class _Error(NamedTuple):
    """One error of pydantic's: where, its type and context, and the last step of its location."""

    place: Place
    kind: str
    context: dict[str, Any]
    last: str


def _explain(error: _Error, whole: str) -> Diagnostic:
    place, kind, context, last = error
    name = describe(place, whole)
    match kind:
        case "extra_forbidden":
            return _unknown_key(place, whole)
        case "missing":
            return _missing_key(place, last, whole)
        case "union_tag_invalid" | "union_tag_not_found":
            return _unknown_branch(place, context["discriminator"].strip("'"), whole)
        case "literal_error":
            return _not_one_of(place.node, name, words_of(place.annotation))
        case "string_pattern_mismatch":
            return _wrong_form(place, name, context["pattern"])
        case _ if kind in _TYPES:
            return _wrong_type(place.node, name, _TYPES[kind])
        case _:
            message = _measure(kind, context, name, place.node)
            return problem("invalid-value", message, place.node.span)


def _measure(kind: str, context: dict[str, Any], name: str, node: Node) -> str:
    match kind:
        case "string_too_short" | "too_short":
            return f"{name} is empty"
        case "string_too_long":
            return f"{name} has more than {context['max_length']} characters"
        case "too_long":
            return f"{name} has more than {context['max_length']} items"
        case "greater_than_equal":
            return f"{name} must be at least {context['ge']}, not {what_is(node)}"
        case "less_than_equal":
            return f"{name} must be at most {context['le']}, not {what_is(node)}"
        case "value_error":
            # Raised by a validator of ours, in our words.
            return str(context["error"])
        case _:
            return f"{name} cannot be {what_is(node)}"


def _meant(place: Place) -> str | None:
    """The key that an unknown one was meant to be."""
    if place.entry is None or place.owner is None:
        return None
    return nearest(place.entry.name, place.owner.model_fields)


def _unknown_key(place: Place, whole: str) -> Diagnostic:
    if place.entry is None or place.owner is None:
        raise TypeError("an unknown key has an entry and a mapping it is in")
    name, span = place.entry.name, place.entry.key
    known = list(place.owner.model_fields)
    guess = _meant(place)
    fix = None
    if place.has_sibling("path") and place.has_sibling("skill_id"):
        help_text = "keep `path` alone, or `skill_id` with `version`"
    elif guess is not None:
        help_text = f"did you mean {quoted(guess)}?"
        fix = Fix(span=span, replacement=guess) if not place.has_sibling(guess) else None
    else:
        help_text = f"write {choice(known)}"
    where = describe(_parent(place), whole)
    return problem(
        "unknown-key", f"unknown key {quoted(name)} in {where}", span, help=help_text, fix=fix
    )


def _missing_key(place: Place, key: str, whole: str) -> Diagnostic:
    wanted = f"`{key}`"
    if key == "path" and place.route[:1] == ("skills",):
        wanted = "`path` or `skill_id`"
    return problem(
        "missing-key",
        f"{describe(place, whole)} has no {wanted}",
        _head(place),
        help=f"add {wanted}",
    )


def _unknown_branch(place: Place, discriminator: str, whole: str) -> Diagnostic:
    words = tags_of(place.annotation, discriminator)
    node = place.node.get(discriminator) if isinstance(place.node, Mapping) else None
    if node is not None:
        return _not_one_of(node, f"`{discriminator}`", words)
    return problem(
        "missing-key",
        f"{describe(place, whole)} has no `{discriminator}`",
        _head(place),
        help=f"add `{discriminator}` with {choice(words)}",
    )


def _not_one_of(node: Node, name: str, words: list[str]) -> Diagnostic:
    guess = None
    if isinstance(node, Scalar) and isinstance(node.value, str):
        guess = nearest(node.value, words)
    return problem(
        "invalid-value",
        f"{name} cannot be {what_is(node)}",
        node.span,
        help=f"write {choice(words)}" if guess is None else f"did you mean {quoted(guess)}?",
        notes=() if guess is None else (f"it is {choice(words)}",),
    )


def _wrong_form(place: Place, name: str, pattern: str) -> Diagnostic:
    is_grant_name = pattern == GRANT_NAME_PATTERN and place.route[-1:] == ("name",)
    form = _FORMS.get(pattern)
    what = what_is(place.node)
    return problem(
        "invalid-grant-name" if is_grant_name else "invalid-value",
        f"{what} is no grant name" if is_grant_name else f"{name} cannot be {what}",
        place.node.span,
        help=None if form is None else f"write {form}",
    )


def _wrong_type(node: Node, name: str, expected: str) -> Diagnostic:
    written, fix = None, None
    if isinstance(node, Scalar) and node.value is not None:
        if expected == "a string" and not isinstance(node.value, str):
            written = f'write `"{node.text}"`'
            fix = Fix(span=node.span, replacement=f'"{node.text}"')
        elif expected == "a whole number" and isinstance(node.value, str):
            written = "write digits without quotes"
    return problem(
        "invalid-value",
        f"{name} must be {expected}, not {what_is(node)}",
        node.span,
        help=written,
        fix=fix,
    )


def _head(place: Place) -> Span:
    """The words that stand for a whole mapping: its key, or its name, or its first key."""
    if place.entry is not None:
        return place.entry.key
    if isinstance(place.node, Mapping) and place.node.entries:
        named = place.node.entry("name")
        return named.value.span if named is not None else place.node.entries[0].key
    return place.node.span


def _parent(place: Place) -> Place:
    return Place(node=place.parents[-1], route=place.route[:-1], parents=place.parents[:-1])
