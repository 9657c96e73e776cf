"""The tree of a YAML or JSON text: values, each with its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from subako_ray.compiler.source import Span

Route: TypeAlias = tuple[str | int, ...]
"""The way from the top of a tree to a node: keys and indices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A string, number, boolean or null; `text` is how one that is not a string is written."""

    span: Span
    value: str | int | float | bool | None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """A list."""

    span: Span
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A key and its value. Keys are strings always."""

    name: str
    key: Span
    value: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """A mapping; no two entries have one name."""

    span: Span
    entries: tuple[Entry, ...]
    _by_name: dict[str, Entry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {entry.name: entry for entry in self.entries}
        object.__setattr__(self, "_by_name", by_name)

    def entry(self, name: str) -> Entry | None:
        """Returns the entry of this name, if there is one."""
        return self._by_name.get(name)

    def get(self, name: str) -> Node | None:
        """Returns the value of this key, if there is one."""
        entry = self.entry(name)
        return None if entry is None else entry.value


Node: TypeAlias = Scalar | Sequence | Mapping


def to_data(node: Node) -> Any:
    """Returns the plain value: dicts, lists and scalars."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [to_data(item) for item in node.items]
        case Mapping():
            return {entry.name: to_data(entry.value) for entry in node.entries}


def step(node: Node, key: str | int) -> Node | None:
    """Returns the child at a key or index, if there is one."""
    match node:
        case Mapping() if isinstance(key, str):
            return node.get(key)
        case Sequence() if isinstance(key, int) and 0 <= key < len(node.items):
            return node.items[key]
        case _:
            return None


def walk(node: Node) -> Iterator[Node]:
    """Yields the node and everything below it, in the order of the text."""
    yield node
    match node:
        case Sequence():
            for item in node.items:
                yield from walk(item)
        case Mapping():
            for entry in node.entries:
                yield from walk(entry.value)
        case Scalar():
            pass


def entries(node: Node) -> Iterator[Entry]:
    """Yields every entry of every mapping at and below the node."""
    for found in walk(node):
        if isinstance(found, Mapping):
            yield from found.entries


def string(node: Node | None) -> str | None:
    """Returns the value of a node that is a string, else None."""
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else None


def items(node: Node | None) -> tuple[Node, ...]:
    """Returns the items of a node that is a list, else none."""
    return node.items if isinstance(node, Sequence) else ()
