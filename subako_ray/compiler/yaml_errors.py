"""What is wrong with a text that is not YAML, in our words.

The parser's own message only tells which of our sentences fits; it is never shown.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from subako_ray.compiler.diagnostic import Diagnostic, problem
from subako_ray.compiler.source import Source


class _Words(NamedTuple):
    message: str
    help_text: str | None = None


_QUOTE: Final = "put the value between quotes"

# Parts of the parser's context or problem, first match wins.
_KNOWN: Final = (
    (
        "mapping values are not allowed",
        _Words(
            "`:` cannot stand here",
            "put a value that holds `: ` between quotes, or check the indentation",
        ),
    ),
    ("sequence entries are not allowed", _Words("`- ` cannot begin a list here", _QUOTE)),
    ("mapping keys are not allowed", _Words("`? ` cannot begin a key here", _QUOTE)),
    ("could not find expected ':'", _Words("a key has no `:` after it", _QUOTE)),
    ("unknown escape character", _Words("this escape sequence is not one of YAML", "write `\\\\`")),
    (
        "escape sequence",
        _Words("this escape sequence is cut short", "write `\\\\` for a backslash"),
    ),
    ("unexpected end of stream", _Words("a quoted string has no closing quote")),
    ("unexpected document separator", _Words("a quoted string has no closing quote")),
    ("while parsing a flow sequence", _Words("a list has no closing `]`, or lacks a `,`")),
    ("while parsing a flow mapping", _Words("a mapping has no closing `}`, or lacks a `,`")),
    (
        "<block end>",
        _Words("this does not belong to what stands before it", "check the indentation"),
    ),
    (
        "block scalar",
        _Words("the head of a block of text is wrong", "write `|` or `>` and begin a new line"),
    ),
    ("scanning an anchor", _Words("`&` begins an anchor, which cannot stand here", _QUOTE)),
    ("scanning an alias", _Words("`*` begins an alias, which cannot stand here", _QUOTE)),
    ("a tag", _Words("`!` begins a tag, which cannot stand here", _QUOTE)),
    ("directive", _Words("`%` begins a directive, which cannot stand here", _QUOTE)),
    ("document start", _Words("something stands before the document or after its end")),
    ("document end", _Words("something stands before the document or after its end")),
)


def explain(source: Source, parser_problem: str, context: str, offset: int) -> Diagnostic:
    """Makes the diagnostic of a text that the YAML parser refused at an offset."""
    character = source.text[offset : offset + 1]
    words = _words(parser_problem, context, character)
    return problem(
        "invalid-syntax", words.message, source.span(offset, offset + 1), help=words.help_text
    )


def _words(parser_problem: str, context: str, character: str) -> _Words:
    if "cannot start any token" in parser_problem:
        if character == "\t":
            return _Words("a tab cannot indent", "indent with spaces")
        return _Words(f"a value cannot begin with `{character}`", _QUOTE)
    for part, words in _KNOWN:
        if part in parser_problem or part in context:
            return words
    if not character:
        return _Words("the text ends early")
    return _Words("this is not YAML", "put a value with special characters between quotes")
