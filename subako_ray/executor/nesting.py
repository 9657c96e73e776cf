"""How deep a JSON value nests: what nests too deep for its reader must not get into a log."""

from __future__ import annotations


def nests_deeper(value: object, levels: int) -> bool:
    """Says whether objects and lists stand in one another more than `levels` times."""
    match value:
        case dict():
            inner = list(value.values())
        case list() | tuple():
            inner = list(value)
        case _:
            return False
    return levels == 0 or any(nests_deeper(each, levels - 1) for each in inner)
