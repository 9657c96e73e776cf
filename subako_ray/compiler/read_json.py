"""JSON text to a tree with a place for every value and key (RFC 8259)."""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn

from subako_ray.compiler.diagnostic import Diagnostic, problem
from subako_ray.compiler.parsed import Parsed, UnreadableError, duplicate_key, too_large_number
from subako_ray.compiler.source import Source, Span
from subako_ray.compiler.tree import Entry, Mapping, Node, Scalar, Sequence
from subako_ray.compiler.wording import quoted
from subako_ray.schema import limits

_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_WORD = re.compile(r"[A-Za-z_]+")
_INTEGER_DIGITS: Final = 1000


def read_json(source: Source) -> Parsed:
    """Reads a JSON text."""
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._text = source.text
        self._at = 0
        self._nodes = 0
        self._decoder = json.JSONDecoder()
        self._diagnostics: list[Diagnostic] = []

    def read(self) -> Parsed:
        try:
            tree = self._value(0)
            self._skip_blanks()
            if self._at < len(self._text):
                self._refuse("something follows the end of the JSON value")
        except UnreadableError as error:
            return Parsed(None, (*self._diagnostics, error.diagnostic))
        return Parsed(tree, tuple(self._diagnostics))

    def _value(self, depth: int) -> Node:
        self._skip_blanks()
        self._nodes += 1
        if depth > limits.MANIFEST_DEPTH:
            raise UnreadableError.too_deep(self._here(1))
        if self._nodes > limits.MANIFEST_NODES:
            raise UnreadableError.too_many(self._here(1))
        match self._peek():
            case "{":
                return self._mapping(depth)
            case "[":
                return self._sequence(depth)
            case '"':
                start = self._at
                return Scalar(value=self._string(), span=self._since(start))
            case _:
                return self._number_or_word()

    def _mapping(self, depth: int) -> Mapping:
        start = self._at
        self._at += 1
        entries: dict[str, Entry] = {}
        self._skip_blanks()
        while self._peek() != "}":
            if entries:
                self._expect(",", "`,` or `}`")
                self._skip_blanks()
            key_start = self._at
            if self._peek() != '"':
                self._refuse("a key between double quotes was expected")
            name = self._string()
            self._nodes += 1
            key = self._since(key_start)
            self._skip_blanks()
            self._expect(":", "`:` after the key")
            entry = Entry(name=name, key=key, value=self._value(depth + 1))
            if (first := entries.get(name)) is not None:
                self._diagnostics.append(duplicate_key(first, entry))
            else:
                entries[name] = entry
            self._skip_blanks()
        self._at += 1
        return Mapping(span=self._since(start), entries=tuple(entries.values()))

    def _sequence(self, depth: int) -> Sequence:
        start = self._at
        self._at += 1
        items: list[Node] = []
        self._skip_blanks()
        while self._peek() != "]":
            if items:
                self._expect(",", "`,` or `]`")
            items.append(self._value(depth + 1))
            self._skip_blanks()
        self._at += 1
        return Sequence(span=self._since(start), items=tuple(items))

    def _string(self) -> str:
        start = self._at
        try:
            value, self._at = self._decoder.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            self._at = min(error.pos, len(self._text))
            if self._peek() == '"' or not self._peek():
                self._at = start
                self._refuse("the string has no closing quote")
            if self._peek() < " ":
                self._refuse("a control character in a string must be escaped")
            self._refuse("the escape sequence is not one of JSON")
        if not isinstance(value, str):
            raise TypeError(f"{type(value)} from a quote")
        if any("\ud800" <= character <= "\udfff" for character in value):
            self._at, end = start, self._at
            self._refuse("the string holds half of a surrogate pair", end - start)
        return value

    def _number_or_word(self) -> Scalar:
        start = self._at
        if number := _NUMBER.match(self._text, start):
            self._at = number.end()
            return self._number(number.group(), start, floating=number.lastindex is not None)
        word = _WORD.match(self._text, start)
        if word is None:
            self._refuse(
                "a JSON value was expected" if self._peek() else "the JSON text ends early"
            )
        if word.group() not in _WORDS:
            self._refuse(f"{quoted(word.group())} is not a JSON value", len(word.group()))
        self._at = word.end()
        return Scalar(value=_WORDS[word.group()], text=word.group(), span=self._since(start))

    def _number(self, text: str, start: int, *, floating: bool) -> Scalar:
        span = self._since(start)
        value: int | float
        if floating:
            value = float(text)
        elif len(text) > _INTEGER_DIGITS:
            raise UnreadableError(too_large_number(span))
        else:
            value = int(text)
        if value in (float("inf"), float("-inf")):
            raise UnreadableError(too_large_number(span))
        return Scalar(value=value, text=text, span=span)

    def _skip_blanks(self) -> None:
        if found := _BLANK.match(self._text, self._at):
            self._at = found.end()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _expect(self, character: str, words: str) -> None:
        if self._peek() != character:
            self._refuse(f"{words} was expected" if self._peek() else "the JSON text ends early")
        self._at += 1

    def _here(self, length: int) -> Span:
        return self._source.span(self._at, self._at + length)

    def _since(self, start: int) -> Span:
        return self._source.span(start, self._at)

    def _refuse(self, message: str, length: int = 1) -> NoReturn:
        raise UnreadableError(problem("invalid-syntax", message, self._here(length)))
