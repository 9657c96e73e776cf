"""YAML 1.2 text to a tree with a place for every value and key.

Events come from ruamel.yaml's parser; scalars are resolved here by the core schema (YAML 1.2.2,
section 10.3.2), so `no`, `on` and `off` are strings. What would make two readers disagree, or make
a small text large (anchors, tags, several documents), is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from subako_ray.compiler.diagnostic import Diagnostic, Fix, problem
from subako_ray.compiler.parsed import Parsed, UnreadableError, duplicate_key, too_large_number
from subako_ray.compiler.source import Source, Span
from subako_ray.compiler.tree import Entry, Mapping, Node, Scalar, Sequence
from subako_ray.compiler.wording import what_is
from subako_ray.compiler.yaml_errors import explain
from subako_ray.schema import limits

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_INTEGER_DIGITS: Final = 1000

# ruamel.yaml raises these, not its own errors, on some malformed texts (an escape beyond Unicode,
# a directive cut short).
_OTHER_ERRORS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)


def read_yaml(source: Source) -> Parsed:
    """Reads a YAML text of one document; an empty text is null."""
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        # A str is taken as text; positions are then character offsets of `source.text`.
        self._events: Iterator[Any] = YAML(typ="safe", pure=True).parse(source.text)
        self._reached = 0
        self._last_end = 0
        self._nodes = 0
        self._diagnostics: list[Diagnostic] = []

    def read(self) -> Parsed:
        try:
            tree = self._document()
        except UnreadableError as error:
            return Parsed(None, (*self._diagnostics, error.diagnostic))
        return Parsed(tree, tuple(self._diagnostics))

    def _document(self) -> Node:
        tree: Node | None = None
        while (event := self._next()) is not None:
            if isinstance(event, DocumentStartEvent):
                self._refuse_directives(event)
                if tree is not None:
                    raise UnreadableError(
                        problem(
                            "several-documents",
                            "a second document begins here",
                            self._span(event),
                            help="keep one document in the file and remove `---` before the others",
                        )
                    )
                tree = self._node(self._next(), 0)
        return tree or Scalar(value=None, span=self._source.span(0, 0))

    def _next(self) -> Any:
        try:
            event = next(self._events, None)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            at = self._reached if mark is None else mark.index
            raise UnreadableError(
                explain(self._source, error.problem or "", error.context or "", at)
            ) from None
        except (YAMLError, *_OTHER_ERRORS):
            raise UnreadableError(explain(self._source, "", "", self._reached)) from None
        if event is not None:
            self._reached = event.end_mark.index
        return event

    def _node(self, event: Any, depth: int) -> Node:
        self._nodes += 1
        self._refuse_anchors_and_tags(event)
        if depth > limits.MANIFEST_DEPTH:
            raise UnreadableError.too_deep(self._span(event))
        if self._nodes > limits.MANIFEST_NODES:
            raise UnreadableError.too_many(self._span(event))
        match event:
            case ScalarEvent():
                return self._scalar(event)
            case SequenceStartEvent():
                return self._sequence(event, depth)
            case MappingStartEvent():
                return self._mapping(event, depth)
            case _:
                raise UnreadableError(explain(self._source, "", "", self._reached))

    def _sequence(self, start: Any, depth: int) -> Sequence:
        items: list[Node] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return Sequence(items=tuple(items), span=self._span(start, event))

    def _mapping(self, start: Any, depth: int) -> Mapping:
        entries: dict[str, Entry] = {}
        while not isinstance(event := self._next(), MappingEndEvent):
            key = self._node(event, depth + 1)
            name = self._key(event, key)
            entry = Entry(name=name, key=key.span, value=self._node(self._next(), depth + 1))
            if (first := entries.get(name)) is not None:
                self._diagnostics.append(duplicate_key(first, entry))
            else:
                entries[name] = entry
        return Mapping(entries=tuple(entries.values()), span=self._span(start, event))

    def _key(self, event: Any, key: Node) -> str:
        if not isinstance(key, Scalar):
            raise UnreadableError(
                problem(
                    "invalid-syntax",
                    f"a key must be a string, not {what_is(key)}",
                    key.span,
                    help="when this was meant as a value, put it between quotes",
                )
            )
        if isinstance(key.value, str):
            return key.value
        name = str(event.value)
        self._diagnostics.append(
            problem(
                "invalid-value",
                f"a key must be a string, not {what_is(key)}",
                key.span,
                help=f'write the key as `"{name}"`' if name else "write a key before the `:`",
                fix=Fix(span=key.span, replacement=f'"{name}"') if name else None,
            )
        )
        return name

    def _scalar(self, event: Any) -> Scalar:
        text, span = event.value, self._span(event)
        plain = event.implicit[0] and event.style in (None, "")
        if not plain:
            return Scalar(value=self._whole(text, span), span=span)
        if text in _NULL:
            return Scalar(value=None, text=text, span=span)
        if text in _BOOLEANS:
            return Scalar(value=_BOOLEANS[text], text=text, span=span)
        return Scalar(value=self._number(text, span), text=text, span=span)

    def _number(self, text: str, span: Span) -> str | int | float:
        if _DECIMAL.fullmatch(text) or _BASED.fullmatch(text):
            if len(text) > _INTEGER_DIGITS:
                raise UnreadableError(too_large_number(span))
            return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
        if _NOT_FINITE.fullmatch(text):
            raise UnreadableError(too_large_number(span))
        if _FLOAT.fullmatch(text):
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise UnreadableError(too_large_number(span))
            return value
        return text

    def _whole(self, text: str, span: Span) -> str:
        """Joins surrogate pairs, as JSON has them in escapes, and refuses halves of one."""
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise UnreadableError(
                problem("invalid-syntax", "the string holds half of a surrogate pair", span)
            ) from None

    def _refuse_anchors_and_tags(self, event: Any) -> None:
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None) is not None:
            what = "an alias" if isinstance(event, AliasEvent) else "an anchor"
            raise UnreadableError(
                problem(
                    "anchor-not-allowed",
                    f"{what} cannot stand in this file",
                    self._first_word(event),
                    help="write the value out; when `&` or `*` is part of a value, put the value"
                    " between quotes",
                )
            )
        if getattr(event, "tag", None) is not None:
            raise UnreadableError(
                problem(
                    "tag-not-allowed",
                    "a tag cannot stand in this file",
                    self._first_word(event),
                    help="put a value that is to be a string between quotes",
                )
            )

    def _refuse_directives(self, event: Any) -> None:
        if event.version not in (None, (1, 2)):
            raise UnreadableError(
                problem(
                    "invalid-syntax",
                    "the file says that it is not YAML 1.2",
                    self._source.line_span(1),
                    help="remove the `%YAML` line",
                )
            )
        if event.tags:
            raise UnreadableError(
                problem(
                    "tag-not-allowed",
                    "a tag cannot stand in this file",
                    self._source.line_span(1),
                    help="remove the `%TAG` line",
                )
            )

    def _first_word(self, event: Any) -> Span:
        start = event.start_mark.index
        word = re.compile(r"\S*").match(self._source.text, start)
        return self._source.span(start, word.end() if word else start)

    def _span(self, first: Any, last: Any = None) -> Span:
        """The place from one event to another, without blanks and comments at its end."""
        start = first.start_mark.index
        if last is None:
            end = first.end_mark.index
        elif last.end_mark.index > last.start_mark.index:
            end = last.end_mark.index
        else:
            # A block ends where the next thing begins; what lies between is not part of it.
            end = self._last_end
        text = self._source.text
        while end > start and text[end - 1] in " \t\r\n":
            end -= 1
        self._last_end = end
        return self._source.span(start, end)
