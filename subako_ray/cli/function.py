"""`subako function build`: asks a function package for its tools and writes them down.

What is asked is what a session runs: the package's files are packed as a bundle and unpacked from
it, and the program runs in a jail.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import assert_never, get_args

from pydantic import ValidationError

from subako_ray.cli.atomic_file import write_atomically
from subako_ray.cli.command import CommandError, ExitCode
from subako_ray.compiler.folder import FolderError, Limits, RootFolder
from subako_ray.compiler.tool_schema import schema_problem
from subako_ray.sandbox.function import (
    Broken,
    FunctionLimits,
    FunctionListing,
    FunctionRunner,
    Listed,
    PackageFolder,
    Refused,
)
from subako_ray.sandbox.lease import Jailer
from subako_ray.sandbox.spec import IsolationSettings, JailUnavailable, LimitsMode
from subako_ray.schema import limits
from subako_ray.schema.bundle import BundleError, BundleFile, pack, unpack
from subako_ray.schema.canonical import CanonicalError, canonical_bytes, parse_json
from subako_ray.schema.package import PACKAGE_FILE, FunctionPackage
from subako_ray.schema.printable import printable
from subako_ray.schema.tool import ToolDescriptor

ASKED = ("protocol_version", "tools")
"""The keys that `build` writes; what stands there before counts for nothing."""

NOT_FOUND = 127
"""What `env` exits with when there is no such program."""

EXAMPLES = """\
examples:
  subako function build functions/anydoc
  subako function build functions/anydoc --check   # in CI: exit 1 when the file is out of date
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares `build` and its arguments."""
    parser.epilog = EXAMPLES
    commands = parser.add_subparsers(dest="action", required=True, metavar="build")
    build = commands.add_parser(
        "build",
        help="ask the package's program, in a jail, for its tools and write them down",
        description=f"Asks the program of a function package, in a jail, for its tools and its "
        f"protocol version, and writes both to {PACKAGE_FILE}.",
        allow_abbrev=False,
    )
    build.add_argument("directory", metavar="DIR", type=Path, help="the package's folder")
    build.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when the file is out of date"
    )
    build.add_argument("--json", action="store_true", help="print what was found as JSON")
    build.add_argument(
        "--timeout-seconds",
        type=_positive,
        default=limits.FUNCTION_TIMEOUT_SECONDS,
        help="how long the program may take (default: %(default)s)",
    )
    build.add_argument(
        "--memory-mib",
        type=_positive,
        default=limits.FUNCTION_MEMORY_MIB,
        help="memory the program may use (default: %(default)s)",
    )
    build.add_argument(
        "--limits",
        choices=get_args(LimitsMode),
        default="enforced",
        help="what to do where this host cannot enforce a limit of a jail (default: refuse)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Builds one package and returns the exit code."""
    directory: Path = arguments.directory
    files = _files(directory)
    written = _written(directory, files)
    package = _package(directory, {k: v for k, v in written.items() if k not in ASKED})
    with _as_it_runs(directory, files) as folder:
        listing = asyncio.run(
            _ask(
                PackageFolder(path=folder, name=package.name, command=tuple(package.command)),
                FunctionLimits(
                    timeout_seconds=arguments.timeout_seconds, memory_mib=arguments.memory_mib
                ),
                IsolationSettings(limits=arguments.limits),
            )
        )
    built = _built(package, _listed(package.name, listing))
    document = built.model_dump(mode="json", exclude_none=True)
    changed = canonical_bytes(document) != canonical_bytes(written)
    if changed and not arguments.check:
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        write_atomically(directory / PACKAGE_FILE, text.encode())
    if arguments.json:
        found = {
            "package": built.name,
            "protocol_version": built.protocol_version,
            "tools": [tool.name for tool in built.tools],
            "changed": changed,
        }
        print(json.dumps(found))
    else:
        _print(built, changed=changed, check=arguments.check)
    return ExitCode.PROBLEMS if changed and arguments.check else ExitCode.CLEAN


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{printable(text)}` is not a whole number from 1")
    return int(text)


def _problem(message: str, help_text: str | None = None) -> CommandError:
    return CommandError(message, help_text, ExitCode.PROBLEMS)


def _files(directory: Path) -> list[BundleFile]:
    name = printable(os.fspath(directory))
    try:
        return RootFolder(directory).files(
            "", Limits(files=limits.BUNDLE_FILES, bytes=limits.BUNDLE_BYTES)
        )
    except FolderError as error:
        if not error.path:
            raise _problem(f"`{name}` is not a folder") from None
        raise _problem(f"`{name}` cannot be a package: {_refusal(error)}") from None
    except (FileNotFoundError, NotADirectoryError):
        raise _problem(f"`{name}` is not a folder") from None
    except OSError as error:
        raise CommandError(f"`{name}` cannot be read: {os.strerror(error.errno or 0)}") from None


def _refusal(error: FolderError) -> str:
    path = printable(error.path)
    match error.refusal:
        case "link":
            return f"`{path}` is a link, and links are not followed"
        case "too_large":
            return f"it has more than {limits.BUNDLE_FILES} files or {limits.BUNDLE_BYTES} bytes"
        case "not_a_file" | "not_a_folder":
            return f"`{path}` is neither a file nor a folder"
        case "missing" | "outside":
            return f"`{path}` does not exist"
        case _:
            assert_never(error.refusal)


def _written(directory: Path, files: list[BundleFile]) -> dict[str, object]:
    path = printable(os.fspath(directory / PACKAGE_FILE))
    file = next((file for file in files if file.path == PACKAGE_FILE), None)
    if file is None:
        raise _problem(
            f"`{path}` does not exist",
            "a function package is a folder with this file; see docs/functions.md",
        )
    try:
        value = parse_json(file.data)
        canonical_bytes(value)
    except CanonicalError as error:
        raise _problem(f"`{path}`: {error}") from None
    if not isinstance(value, dict):
        raise _problem(f"`{path}` does not hold a JSON object")
    return value


def _package(directory: Path, value: dict[str, object]) -> FunctionPackage:
    try:
        return FunctionPackage.model_validate(value)
    except ValidationError as error:
        path = printable(os.fspath(directory / PACKAGE_FILE))
        raise _problem(f"`{path}`: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    """Says in our words what is wrong with one value of a package."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = printable(".".join(str(part) for part in first["loc"]))
    match first["type"]:
        case "missing":
            return f"`{place}` is missing"
        case "extra_forbidden":
            return f"there is no key `{place}`"
        case "literal_error":
            return f"`{place}` must be {first['ctx']['expected']}"
        case "value_error":
            return str(first["ctx"]["error"])
        case _:
            return f"`{place}` has a value that cannot stand there"


@contextmanager
def _as_it_runs(directory: Path, files: list[BundleFile]) -> Iterator[Path]:
    """Unpacks the package as a session does, with modes that a jail can read."""
    try:
        bundle = pack(files)
    except BundleError as error:
        raise _problem(
            f"`{printable(os.fspath(directory))}` cannot be a package: {error}"
        ) from None
    with tempfile.TemporaryDirectory(prefix="subako-build-") as temporary:
        folder = Path(temporary) / "package"
        unpack(bundle.data, bundle.digest, folder)
        yield folder


async def _ask(
    package: PackageFolder, allowed: FunctionLimits, settings: IsolationSettings
) -> FunctionListing:
    try:
        jailer = await Jailer.start(settings)
        try:
            return await FunctionRunner(jailer).list_tools(package, allowed)
        finally:
            await jailer.aclose()
    except JailUnavailable as error:
        raise CommandError(error.message, error.help_text) from None


def _listed(name: str, listing: FunctionListing) -> Listed:
    match listing:
        case Listed(tools=[]):
            raise _problem(f"function package `{printable(name)}` lists no tools")
        case Listed():
            return listing
        case Refused(message=message):
            raise _problem(
                f"function package `{printable(name)}` cannot say its tools: "
                f"{printable(message)[:1000]}"
            )
        case Broken(reason="supervisor_lost", detail=detail):
            raise CommandError(printable(detail))
        case Broken(detail=detail):
            raise _problem(printable(detail), _help(listing))
        case _:
            assert_never(listing)


def _help(broken: Broken) -> str | None:
    command = "check `command`: the program must exist in the package or in the jail"
    match broken.reason:
        case "bad_output":
            return "only MCP messages may go to standard output; print to standard error"
        case "jail_failed":
            return command
        case "exited" if broken.report.exit_code == NOT_FOUND:
            return command
        case "timed_out":
            return "give it more time with --timeout-seconds"
        case "out_of_memory":
            return "give it more memory with --memory-mib"
        case _:
            return None


def _built(package: FunctionPackage, listed: Listed) -> FunctionPackage:
    whose = f"function package `{printable(package.name)}`"
    tools: list[ToolDescriptor] = []
    for number, raw in enumerate(listed.tools, start=1):
        try:
            tool = ToolDescriptor.from_mcp(raw)
        except ValidationError as error:
            raise _problem(f"{whose}, tool {number}: {_first(error)}") from None
        for key, schema in (
            ("input_schema", tool.input_schema),
            ("output_schema", tool.output_schema),
        ):
            if schema is not None and (why := schema_problem(schema)) is not None:
                raise _problem(f"{whose}, tool `{tool.name}`: its `{key}` {why}")
        tools.append(tool)
    try:
        return FunctionPackage.model_validate(
            {
                **package.model_dump(mode="json", exclude_none=True),
                "protocol_version": listed.protocol_version,
                "tools": [tool.model_dump(mode="json", exclude_none=True) for tool in tools],
            }
        )
    except ValidationError as error:
        raise _problem(f"{whose}: {_first(error)}") from None


def _print(package: FunctionPackage, *, changed: bool, check: bool) -> None:
    count = "1 tool" if len(package.tools) == 1 else f"{len(package.tools)} tools"
    print(f"{printable(package.name)}: {count}, MCP {package.protocol_version}")
    width = max(len(tool.name) for tool in package.tools)
    for tool in package.tools:
        summary = (tool.description or "").strip().partition("\n")[0]
        print(f"  {tool.name:<{width}}  {printable(summary)}".rstrip())
    for tool in package.tools:
        if not tool.description:
            print(
                f"warning: tool `{printable(tool.name)}` has no description, so a model cannot tell"
                " what it is for\n  help: give its function a docstring",
                file=sys.stderr,
            )
    if not changed:
        print(f"{PACKAGE_FILE} is up to date")
    elif not check:
        print(f"{PACKAGE_FILE} written")
    else:
        print(
            f"error: `{PACKAGE_FILE}` of `{printable(package.name)}` is out of date\n"
            "  help: run `subako function build` without --check",
            file=sys.stderr,
        )
