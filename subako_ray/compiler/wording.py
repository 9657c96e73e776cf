"""How messages quote what an author wrote, and suggest what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from subako_ray.compiler.credential_shapes import masked
from subako_ray.compiler.tree import Mapping, Node, Scalar, Sequence

_QUOTED_CHARACTERS: Final = 80


def quoted(text: str) -> str:
    """Returns the text between backticks, cut when long, without credentials."""
    shown = masked(text)
    if len(shown) > _QUOTED_CHARACTERS:
        shown = shown[:_QUOTED_CHARACTERS] + "…"
    return f"`{shown}`"


def what_is(node: Node) -> str:
    """Says what a node is: its kind and, when it is a scalar, its value."""
    match node:
        case Mapping():
            return "a mapping"
        case Sequence():
            return "a list"
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=bool(), text=text):
            return f"the boolean {quoted(text)}"
        case Scalar(value=str(value)):
            return f"the string {quoted(value)}"
        case Scalar(text=text):
            return f"the number {quoted(text)}"


def choice(words: Iterable[str]) -> str:
    """Joins words as a choice: "`a`, `b` or `c`"."""
    shown = [quoted(word) for word in words]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Returns the word that was most likely meant, if one is near."""
    found = difflib.get_close_matches(word.lower()[:100], list(words), n=1, cutoff=0.6)
    return found[0] if found else None
