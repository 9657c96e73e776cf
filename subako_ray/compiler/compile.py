"""Compiling one version: a manifest and the files it names, to a plan and its bundles.

Read it from `compile_manifest` down: text → tree → checked manifest and loaded files → plan, or a
report of everything that is wrong. The only input is a read-only view of one folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from subako_ray.compiler.check_grants import GrantNode, check_grants, grants
from subako_ray.compiler.check_shape import check_shape
from subako_ray.compiler.check_tools import check_tools
from subako_ray.compiler.compilation import Compilation, NamedPath
from subako_ray.compiler.diagnostic import Report
from subako_ray.compiler.folder import Folder, FolderError, RootFolder
from subako_ray.compiler.function_package import LoadedPackage, load_package
from subako_ray.compiler.prompt import load_prompt
from subako_ray.compiler.read_text import Text, decode, parse
from subako_ray.compiler.refusals import refused
from subako_ray.compiler.resolve import Loaded, resolve
from subako_ray.compiler.skill import LoadedSkill, load_skill
from subako_ray.compiler.source import Source
from subako_ray.compiler.tree import Mapping as MappingNode
from subako_ray.compiler.tree import Node, string
from subako_ray.schema import limits
from subako_ray.schema.manifest import Manifest
from subako_ray.schema.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledVersion:
    """A plan, and the bundles (tar.gz) that it names, by digest."""

    plan: Plan
    bundles: Mapping[str, bytes]


def compile_version(
    manifest: str | os.PathLike[str], root: str | os.PathLike[str] | None = None
) -> CompiledVersion | Report:
    """Compiles a manifest of this host.

    Args:
        manifest: the file.
        root: the folder that every path must stay in; by default the manifest's own.

    Raises:
        FolderError: the manifest itself cannot be read, or is not below the root.
        OSError: the host refuses to read a file.
    """
    path = Path(os.path.abspath(manifest))  # noqa: PTH100 - `resolve` would follow links
    top = path.parent if root is None else Path(os.path.abspath(root))  # noqa: PTH100
    if not path.is_relative_to(top):
        raise FolderError("outside", os.fspath(manifest))
    outcome = compile_manifest(path.relative_to(top).as_posix(), RootFolder(top))
    if isinstance(outcome, Report):
        shown = os.fspath(Path(manifest).parent if root is None else root)
        return replace(outcome, shown_root="" if shown == "." else shown)
    return outcome


def compile_manifest(path: str, folder: Folder) -> CompiledVersion | Report:
    """Compiles a manifest.

    Args:
        path: the manifest's, below the folder's root.
        folder: the files it may name.

    Raises:
        FolderError: the manifest itself cannot be read.
    """
    compilation = Compilation(folder=folder, base=path.rpartition("/")[0])
    source, unreadable = _read(folder, path)
    if unreadable is not None:
        compilation.add_source(source)
        compilation.add(unreadable)
        return compilation.report()
    tree, problems = parse(source)
    compilation.add_source(source, tree)
    compilation.add(*problems)
    if tree is None:
        return compilation.report()

    checked = check_shape(Manifest, tree, "the manifest")
    compilation.add(*checked.diagnostics)
    compilation.add(*check_grants(tree))
    prompt = load_prompt(compilation, _prompt_node(tree))
    skills = dict(_load_skills(compilation, tree))
    packages = dict(_load_packages(compilation, tree))
    compilation.add(*check_tools(tree, packages))
    report = compilation.report()
    if report.diagnostics:
        return report
    if checked.value is None or prompt is None:
        raise AssertionError("a manifest that is wrong has a diagnostic")

    loaded = Loaded(prompt=prompt.text, skills=skills, packages=packages)
    bundles = [skill.bundle for skill in skills.values()]
    bundles += [package.bundle for package in packages.values()]
    return CompiledVersion(
        plan=resolve(checked.value, loaded),
        bundles={bundle.digest: bundle.data for bundle in bundles},
    )


def _read(folder: Folder, path: str) -> Text:
    try:
        return decode(path, folder.read(path, limits.MANIFEST_BYTES))
    except FolderError as error:
        if error.refusal != "too_large":
            raise
        source = Source(path=path, text="")
        return Text(source, refused(error, source.span(0, 0)))


def _prompt_node(tree: Node) -> Node | None:
    return tree.get("system_prompt") if isinstance(tree, MappingNode) else None


def _load_skills(compilation: Compilation, tree: Node) -> Iterator[tuple[str, LoadedSkill]]:
    for grant, named in _paths(compilation, tree, "skills"):
        skill = load_skill(compilation, named)
        if skill is not None:
            yield string(grant.node.get("name")) or "", skill


def _load_packages(compilation: Compilation, tree: Node) -> Iterator[tuple[str, LoadedPackage]]:
    for grant, named in _paths(compilation, tree, "functions"):
        package = load_package(compilation, named)
        if package is not None:
            yield string(grant.node.get("name")) or "", package


def _paths(
    compilation: Compilation, tree: Node, group: str
) -> Iterator[tuple[GrantNode, NamedPath]]:
    """Yields the grants of a list that name a folder, each with its path below the root."""
    for grant in grants(tree):
        node = grant.node.get("path")
        written = string(node)
        if grant.group != group or node is None or not written:
            continue
        try:
            yield grant, NamedPath(compilation.resolve(written), node.span)
        except FolderError as error:
            compilation.add(refused(error, node.span))
