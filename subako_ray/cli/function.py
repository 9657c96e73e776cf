"""`subako function build`: asks a function package for its tools and writes them down.

The package's program runs in a jail, as it does for every call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import stat
import sys
import tempfile
from pathlib import Path

from pydantic import ValidationError

from subako_ray.cli.main import CommandError, ExitCode
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
from subako_ray.sandbox.spec import IsolationSettings, JailUnavailable
from subako_ray.schema import limits
from subako_ray.schema.canonical import CanonicalError, canonical_bytes, parse_json
from subako_ray.schema.package import PACKAGE_FILE, FunctionPackage
from subako_ray.schema.tool import ToolDescriptor

PACKAGE_FILE_BYTES = 4 * 1024 * 1024
ASKED = ("protocol_version", "tools")
"""The keys that `build` writes; what stands there before counts for nothing."""

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


def run(arguments: argparse.Namespace) -> int:
    """Builds one package and returns the exit code."""
    directory: Path = arguments.directory
    written = _read(directory)
    package = _package(directory, {k: v for k, v in written.items() if k not in ASKED})
    listing = asyncio.run(
        _ask(
            PackageFolder(
                path=directory.resolve(), name=package.name, command=tuple(package.command)
            ),
            FunctionLimits(
                timeout_seconds=arguments.timeout_seconds, memory_mib=arguments.memory_mib
            ),
        )
    )
    built = _built(directory, package, _listed(package.name, listing))
    document = built.model_dump(mode="json", exclude_none=True)
    changed = canonical_bytes(document) != canonical_bytes(written)
    if changed and not arguments.check:
        _write(directory / PACKAGE_FILE, document)
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
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _problem(message: str, help_text: str | None = None) -> CommandError:
    return CommandError(message, help_text, ExitCode.PROBLEMS)


def _read(directory: Path) -> dict[str, object]:
    path = directory / PACKAGE_FILE
    try:
        # A link could name any file of this host, and a pipe would keep us waiting.
        if not stat.S_ISREG(path.lstat().st_mode):
            raise _problem(f"`{path}` is not a regular file")
        with path.open("rb") as file:
            data = file.read(PACKAGE_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _problem(
            f"`{path}` does not exist",
            "a function package is a folder with this file; see docs/functions.md",
        ) from None
    except OSError as error:
        raise _problem(f"`{path}` cannot be read: {os.strerror(error.errno or 0)}") from None
    if len(data) > PACKAGE_FILE_BYTES:
        raise _problem(f"`{path}` is larger than {PACKAGE_FILE_BYTES} bytes")
    try:
        value = parse_json(data)
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
        raise _problem(f"`{directory / PACKAGE_FILE}`: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    """Says in our words what is wrong with one value of a package."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    match first["type"]:
        case "missing":
            return f"`{place}` is missing"
        case "extra_forbidden":
            return f"there is no key `{_printable(place)}`"
        case "literal_error":
            return f"`{place}` must be {first['ctx']['expected']}"
        case "value_error":
            return str(first["ctx"]["error"])
        case _:
            return f"`{place}` has a value that cannot stand there"


async def _ask(package: PackageFolder, allowed: FunctionLimits) -> FunctionListing:
    try:
        jailer = await Jailer.start(IsolationSettings())
        try:
            return await FunctionRunner(jailer).list_tools(package, allowed)
        finally:
            await jailer.aclose()
    except JailUnavailable as error:
        raise CommandError(error.message, error.help_text, ExitCode.HOST) from None


def _listed(name: str, listing: FunctionListing) -> Listed:
    match listing:
        case Listed():
            return listing
        case Refused(message=message):
            raise _problem(
                f"function package `{name}` cannot say its tools: {_printable(message)[:1000]}"
            )
        case Broken(reason="supervisor_lost", detail=detail):
            raise CommandError(detail, None, ExitCode.HOST)
        case Broken(detail=detail):
            raise _problem(detail, _help(listing))


def _help(broken: Broken) -> str | None:
    match broken.reason:
        case "bad_output":
            return "only MCP messages may go to standard output; print to standard error"
        case "jail_failed":
            return "check `command`: the program must exist in the package or be `python3`"
        case "timed_out":
            return "give it more time with --timeout-seconds"
        case "out_of_memory":
            return "give it more memory with --memory-mib"
        case _:
            return None


def _built(directory: Path, package: FunctionPackage, listed: Listed) -> FunctionPackage:
    tools = []
    for number, raw in enumerate(listed.tools, start=1):
        try:
            tools.append(ToolDescriptor.from_mcp(raw))
        except ValidationError as error:
            raise _problem(
                f"function package `{package.name}`, tool {number}: {_first(error)}"
            ) from None
    return _package(
        directory,
        {
            **package.model_dump(mode="json", exclude_none=True),
            "protocol_version": listed.protocol_version,
            "tools": [tool.model_dump(mode="json", exclude_none=True) for tool in tools],
        },
    )


def _write(path: Path, document: object) -> None:
    """Replaces the file at once or not at all, keeping its mode."""
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        reason = os.strerror(error.errno or 0)
        raise CommandError(f"`{path}` cannot be written: {reason}") from None


def _print(package: FunctionPackage, *, changed: bool, check: bool) -> None:
    count = "1 tool" if len(package.tools) == 1 else f"{len(package.tools)} tools"
    print(f"{_printable(package.name)}: {count}, MCP {package.protocol_version}")
    width = max((len(tool.name) for tool in package.tools), default=0)
    for tool in package.tools:
        summary = (tool.description or "").strip().partition("\n")[0]
        print(f"  {tool.name:<{width}}  {_printable(summary)}".rstrip())
    if not changed:
        print(f"{PACKAGE_FILE} is up to date")
    elif not check:
        print(f"{PACKAGE_FILE} written")
    else:
        print(
            f"error: `{PACKAGE_FILE}` of `{_printable(package.name)}` is out of date\n"
            "  help: run `subako function build` without --check",
            file=sys.stderr,
        )


def _printable(text: str) -> str:
    """Escapes control and bidirectional characters of foreign text."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
