"""Function packages by path: a folder with `subako-package.json`, packed as a bundle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from subako_ray.compiler.check_shape import check_shape
from subako_ray.compiler.compilation import Compilation, NamedPath
from subako_ray.compiler.diagnostic import Diagnostic, Label, problem
from subako_ray.compiler.folder import FolderError, Limits
from subako_ray.compiler.read_json import read_json
from subako_ray.compiler.read_text import decode
from subako_ray.compiler.refusals import refused_folder
from subako_ray.compiler.source import Source, Span
from subako_ray.compiler.tool_schema import schema_problem
from subako_ray.compiler.tree import Mapping, Node, items, to_data
from subako_ray.compiler.wording import quoted
from subako_ray.schema import limits
from subako_ray.schema.bundle import Bundle, BundleError, BundleFile, pack
from subako_ray.schema.package import PACKAGE_FILE, FunctionPackage


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPackage:
    """A function package that was read and packed."""

    bundle: Bundle
    package: FunctionPackage


def load_package(compilation: Compilation, named: NamedPath) -> LoadedPackage | None:
    """Reads, checks and packs a package; None when something is wrong, which is then noted."""
    try:
        files = compilation.folder.files(
            named.path, Limits(files=limits.BUNDLE_FILES, bytes=limits.BUNDLE_BYTES)
        )
    except FolderError as error:
        compilation.add(refused_folder(error, named, "invalid-package", "the package"))
        return None
    main = next((file for file in files if file.path == PACKAGE_FILE), None)
    if main is None:
        message = f"the package's folder has no `{PACKAGE_FILE}`"
        help_text = "write it as docs/functions.md shows"
        compilation.add(problem("invalid-package", message, named.place, help=help_text))
        return None
    package = _read_package(compilation, named, main)
    try:
        bundle = pack(files)
    except BundleError as error:
        compilation.add(problem("invalid-package", f"in the package, {error}", named.place))
        return None
    return None if package is None else LoadedPackage(bundle=bundle, package=package)


def _read_package(
    compilation: Compilation, named: NamedPath, file: BundleFile
) -> FunctionPackage | None:
    path = f"{named.path}/{file.path}" if named.path else file.path
    source, unreadable = decode(path, file.data)
    granted = Label(span=named.place, text="granted here")
    if unreadable is not None:
        compilation.add_source(source)
        compilation.add(replace(unreadable, secondary=(granted,)))
        return None
    parsed = read_json(source)
    compilation.add_source(source, parsed.tree)
    compilation.add(
        *(replace(one, secondary=(*one.secondary, granted)) for one in parsed.diagnostics)
    )
    if parsed.tree is None:
        return None
    checked = check_shape(FunctionPackage, parsed.tree, "the package")
    compilation.add(
        *(replace(one, rule="invalid-package", secondary=(granted,)) for one in checked.diagnostics)
    )
    if checked.value is None:
        return None
    problems = list(_check_tools(source, parsed.tree, named))
    compilation.add(*(replace(one, secondary=(granted,)) for one in problems))
    return None if problems or parsed.diagnostics else checked.value


def _check_tools(source: Source, tree: Node, named: NamedPath) -> Iterator[Diagnostic]:
    tools = items(tree.get("tools")) if isinstance(tree, Mapping) else ()
    if not tools:
        yield problem(
            "invalid-package",
            "the package lists no tools",
            source.line_span(1),
            help=f"run `subako function build {named.path}`",
        )
    for tool in tools:
        if isinstance(tool, Mapping):
            yield from _check_schemas(tool)


def _check_schemas(tool: Mapping) -> Iterator[Diagnostic]:
    name = tool.get("name")
    for key in ("input_schema", "output_schema"):
        schema = tool.get(key)
        if not isinstance(schema, Mapping):
            continue
        why = schema_problem(to_data(schema))
        if why is not None and name is not None:
            yield problem(
                "invalid-package",
                f"the `{key}` of the tool {quoted(str(to_data(name)))} {why}",
                _key_span(tool, key),
                help="make the schema whole: it may refer to its own parts only",
            )


def _key_span(mapping: Mapping, key: str) -> Span:
    entry = mapping.entry(key)
    return mapping.span if entry is None else entry.key
