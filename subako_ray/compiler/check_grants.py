"""Whether grants can stand beside each other: names, tools named twice, URLs.

Works on the tree, so that it says what is wrong beside other mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from subako_ray.compiler.diagnostic import Diagnostic, Label, problem
from subako_ray.compiler.rules import Rule
from subako_ray.compiler.tree import Mapping, Node, Scalar, items, string
from subako_ray.compiler.wording import quoted
from subako_ray.schema.names import RESERVED_GRANT_NAMES
from subako_ray.schema.target import McpTarget, Origin, TargetError

GRANT_LISTS: Final = ("mcp", "skills", "functions", "sandboxes")
"""The keys of a manifest that hold named grants."""


class GrantNode(NamedTuple):
    """One entry of a list of grants."""

    group: str
    node: Mapping


def grants(tree: Node) -> Iterator[GrantNode]:
    """Yields the grants of a manifest that are mappings at least."""
    for group in GRANT_LISTS:
        listed = items(tree.get(group)) if isinstance(tree, Mapping) else ()
        for node in listed:
            if isinstance(node, Mapping):
                yield GrantNode(group, node)


def check_grants(tree: Node) -> Iterator[Diagnostic]:
    """Yields what is wrong with names, tool lists and URLs."""
    for group in GRANT_LISTS:
        named = [grant.node.get("name") for grant in grants(tree) if grant.group == group]
        yield from _unique(named, "duplicate-grant-name", f"`{group}` has two grants named {{}}")
        yield from _unreserved(named)
    if isinstance(tree, Mapping):
        builtins = items(tree.get("builtins"))
        yield from _unique(builtins, "duplicate-grant-name", "`builtins` lists {} twice")
    for grant in grants(tree):
        tools = items(grant.node.get("tools"))
        named = [tool.get("name") for tool in tools if isinstance(tool, Mapping)]
        yield from _unique(named, "duplicate-tool", "`tools` has two policies for {}")
        yield from _check_urls(grant)


def _unique(
    named: tuple[Node, ...] | list[Node | None], rule: Rule, what: str
) -> Iterator[Diagnostic]:
    first: dict[str, Node] = {}
    for node in named:
        name = string(node)
        if node is None or name is None:
            continue
        if name in first:
            yield problem(
                rule,
                what.format(quoted(name)),
                node.span,
                "second",
                secondary=(Label(span=first[name].span, text="first"),),
                help="remove one of the two, or rename it",
            )
        else:
            first[name] = node


def _unreserved(named: list[Node | None]) -> Iterator[Diagnostic]:
    for node in named:
        name = string(node)
        if node is not None and name in RESERVED_GRANT_NAMES:
            yield problem(
                "reserved-grant-name",
                f"the grant name {quoted(name)} is reserved",
                node.span,
                help="choose another name",
            )


def _check_urls(grant: GrantNode) -> Iterator[Diagnostic]:
    if grant.group == "mcp":
        yield from _check_url(grant.node.get("url"), McpTarget)
    if grant.group == "functions":
        for origin in items(grant.node.get("origins")):
            yield from _check_url(origin, Origin)


def _check_url(node: Node | None, target: type[McpTarget] | type[Origin]) -> Iterator[Diagnostic]:
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return
    try:
        target.parse(node.value)
    except TargetError as error:
        example = "https://mcp.example.com/orders" if target is McpTarget else "https://example.com"
        yield problem("invalid-url", error.message, node.span, help=f"write it like `{example}`")
