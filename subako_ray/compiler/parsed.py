"""What reading a text gives: a tree, or why there is none."""

from __future__ import annotations

from typing import NamedTuple

from subako_ray.compiler.diagnostic import Diagnostic, Label, problem
from subako_ray.compiler.source import Span
from subako_ray.compiler.tree import Entry, Node
from subako_ray.compiler.wording import quoted
from subako_ray.schema import limits


class Parsed(NamedTuple):
    """A tree, and what was wrong with the text. There may be both."""

    tree: Node | None
    diagnostics: tuple[Diagnostic, ...]


class UnreadableError(Exception):
    """A text has no tree; reading stops at the diagnostic it carries."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic)
        self.diagnostic = diagnostic

    @classmethod
    def too_deep(cls, span: Span) -> UnreadableError:
        """Mappings and lists nest deeper than anything we read needs."""
        return cls(
            problem("too-deep", f"this nests more than {limits.MANIFEST_DEPTH} levels deep", span)
        )

    @classmethod
    def too_many(cls, span: Span) -> UnreadableError:
        """The text has more values than anything we read needs."""
        return cls(
            problem("too-large", f"the text has more than {limits.MANIFEST_NODES} values", span)
        )


def duplicate_key(first: Entry, second: Entry) -> Diagnostic:
    """Makes the diagnostic of a key that stands twice in one mapping."""
    return problem(
        "duplicate-key",
        f"the key {quoted(second.name)} stands twice in one mapping",
        second.key,
        "second",
        secondary=(Label(span=first.key, text="first"),),
        help="remove one of the two",
    )


def too_large_number(span: Span) -> Diagnostic:
    """Makes the diagnostic of a number that cannot be carried exactly."""
    return problem(
        "invalid-value",
        "the number is too large or not finite",
        span,
        help="write it as a string between quotes",
    )
