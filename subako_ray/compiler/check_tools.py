"""Whether policies name tools that exist, where the tools are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from subako_ray.compiler.check_grants import GrantNode, grants
from subako_ray.compiler.diagnostic import Diagnostic, problem
from subako_ray.compiler.function_package import LoadedPackage
from subako_ray.compiler.tree import Mapping as MappingNode
from subako_ray.compiler.tree import Node, items, string
from subako_ray.compiler.wording import choice, nearest, quoted
from subako_ray.schema.fixed_tools import SANDBOX_TOOLS


def check_tools(tree: Node, packages: Mapping[str, LoadedPackage]) -> Iterator[Diagnostic]:
    """Yields the policies of tools that their grant does not have.

    A misspelt deny would leave the tool under the grant's default policy.

    Args:
        tree: the manifest.
        packages: the function packages that could be read, by the name of their grant.
    """
    for grant in grants(tree):
        known = _known(grant, packages)
        if known is not None:
            yield from _check(grant, known)


def _known(grant: GrantNode, packages: Mapping[str, LoadedPackage]) -> list[str] | None:
    if grant.group == "sandboxes":
        return [tool.name for tool in SANDBOX_TOOLS]
    if grant.group != "functions":
        return None
    loaded = packages.get(string(grant.node.get("name")) or "")
    return None if loaded is None else [tool.name for tool in loaded.package.tools]


def _check(grant: GrantNode, known: list[str]) -> Iterator[Diagnostic]:
    for tool in items(grant.node.get("tools")):
        node = tool.get("name") if isinstance(tool, MappingNode) else None
        name = string(node)
        if node is None or name is None or name in known:
            continue
        guess = nearest(name, known)
        yield problem(
            "unknown-tool",
            f"the grant has no tool {quoted(name)}",
            node.span,
            help=f"it has {choice(known)}" if guess is None else f"did you mean {quoted(guess)}?",
        )
