"""Where a pydantic error is in a tree, and what the type allows there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel

from subako_ray.compiler.tree import Entry, Mapping, Node, Route, step, string
from subako_ray.compiler.wording import quoted

_GRANTS: Final = frozenset({"mcp", "skills", "functions", "sandboxes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node of a tree with the way to it.

    Attributes:
        node: the node itself.
        route: keys and indices from the top.
        parents: the nodes on the way, the top first.
        entry: the key and value, when the node is the value of a key.
        annotation: the node's type; Any when the type says nothing of it.
        owner: the type of the mapping that the node is a value of.
    """

    node: Node
    route: Route = ()
    parents: tuple[Node, ...] = ()
    entry: Entry | None = None
    annotation: Any = Any
    owner: type[BaseModel] | None = None

    def has_sibling(self, key: str) -> bool:
        """Says whether the mapping that the node is a value of has this key."""
        parent = self.parents[-1] if self.parents else None
        return isinstance(parent, Mapping) and parent.entry(key) is not None


def locate(model: type[BaseModel], tree: Node, location: Route) -> Place:
    """Follows an error's location as far as the tree goes.

    Steps that only name the branch of a union have no node; they choose the type.
    """
    place = Place(node=tree, annotation=model)
    for key in location:
        options = options_of(place.annotation)
        if isinstance(key, str) and len(options) > 1:
            chosen = next((option for option in options if _is_named(option, key)), Any)
            place = Place(
                node=place.node,
                route=place.route,
                parents=place.parents,
                entry=place.entry,
                annotation=chosen,
                owner=place.owner,
            )
            continue
        child = step(place.node, key)
        if child is None:
            return place
        owner, annotation = _inner(options, key)
        place = Place(
            node=child,
            route=(*place.route, key),
            parents=(*place.parents, place.node),
            entry=place.node.entry(str(key)) if isinstance(place.node, Mapping) else None,
            annotation=annotation,
            owner=owner,
        )
    return place


def options_of(annotation: Any) -> list[Any]:
    """Returns the members of a union but None; of another annotation, itself."""
    if get_origin(annotation) is Annotated:
        return options_of(get_args(annotation)[0])
    if get_origin(annotation) in (None, list, dict, Literal):
        return [] if annotation is type(None) else [annotation]
    return [option for member in get_args(annotation) for option in options_of(member)]


def words_of(annotation: Any) -> list[str]:
    """Returns the words that a Literal type allows."""
    return [
        str(word)
        for option in options_of(annotation)
        if get_origin(option) is Literal
        for word in get_args(option)
    ]


def tags_of(annotation: Any, discriminator: str) -> list[str]:
    """Returns the words that tell the members of a union apart, in the key `discriminator`."""
    return [
        word
        for option in options_of(annotation)
        if isinstance(option, type) and issubclass(option, BaseModel)
        for word in words_of(option.model_fields[discriminator].annotation)
    ]


def describe(place: Place, whole: str) -> str:
    """Names a place for a message: the grant, the item or the key.

    Args:
        place: what to name.
        whole: what to call the whole tree: "the manifest".
    """
    for depth in range(len(place.route), 0, -1):
        key = place.route[depth - 1]
        if isinstance(key, str):
            return f"`{key}`"
        node = (*place.parents, place.node)[depth]
        group = place.route[depth - 2] if depth > 1 else whole
        name = string(node.get("name")) if isinstance(node, Mapping) else None
        if name is None:
            return f"item {key + 1} of `{group}`"
        noun = "grant" if group in _GRANTS else "item"
        return f"the `{group}` {noun} {quoted(name)}"
    return whole


def _inner(options: list[Any], key: str | int) -> tuple[type[BaseModel] | None, Any]:
    for option in options:
        if isinstance(option, type) and issubclass(option, BaseModel):
            field = option.model_fields.get(str(key))
            return option, Any if field is None else field.annotation
        if get_origin(option) is list:
            return None, get_args(option)[0]
    return None, Any


def _is_named(option: Any, tag: str) -> bool:
    if not isinstance(option, type):
        return False
    if option.__name__ == tag:
        return True
    if not issubclass(option, BaseModel):
        return False
    return any(tag in words_of(field.annotation) for field in option.model_fields.values())
