"""`subako compile`: a version manifest to a tool plan, or what is wrong with it."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from subako_ray.cli.atomic_file import check_replaceable, write_atomically
from subako_ray.cli.colour import COLOURS, Colour, wants_colour
from subako_ray.cli.command import CommandError, ExitCode
from subako_ray.compiler import (
    FORMATS,
    CompiledVersion,
    FolderError,
    Format,
    Report,
    compile_version,
)
from subako_ray.schema.names import POLICIES
from subako_ray.schema.plan import Plan
from subako_ray.schema.printable import printable

BUNDLES_FOLDER = "bundles"
PLAN_FAMILY = b'"format":"subako.plan/'
"""What stands in every plan, of this version of the format or another."""

EXAMPLES = """\
examples:
  subako compile version.yaml                        # the plan to standard output
  subako compile version.yaml -o build/plan.json     # with its bundles in build/bundles
  subako compile agents/support.yaml --root .        # may use files of the whole checkout
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("version", metavar="VERSION", type=Path, help="the manifest, YAML or JSON")
    parser.add_argument(
        "-o",
        "--output",
        metavar="PLAN",
        type=Path,
        help="write the plan here and its bundles beside it (default: the plan to standard output)",
    )
    parser.add_argument(
        "--bundles",
        metavar="DIR",
        type=Path,
        help=f"write bundles here (default: `{BUNDLES_FOLDER}` beside PLAN)",
    )
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=Path,
        help="the folder that every file must be in (default: the manifest's)",
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="full", help="how problems are written"
    )
    parser.add_argument(
        "--color", choices=COLOURS, default="auto", help="colours in the format `full`"
    )


def run(arguments: argparse.Namespace) -> int:
    """Compiles and returns the exit code."""
    compiled = compile_or_print(
        arguments.version, arguments.root, output=arguments.format, colour=arguments.color
    )
    if compiled is None:
        return ExitCode.PROBLEMS
    _write(compiled, arguments.output, arguments.bundles)
    return ExitCode.CLEAN


def compile_or_print(
    version: Path,
    root: Path | str | None,
    *,
    output: Format = "full",
    colour: Colour = "auto",
) -> CompiledVersion | None:
    """Compiles a manifest that was named on the command line.

    Returns:
        None when it has problems, which were printed to standard error.

    Raises:
        CommandError: the manifest cannot be read, or the host fails.
    """
    compiled = compile_or_fail(version, root)
    match compiled:
        case CompiledVersion():
            return compiled
        case Report():
            # Only what has problems is rendered.
            from subako_ray.compiler.render import render

            text = render(compiled, output, colour=wants_colour(colour, sys.stderr))
            sys.stderr.write(text)
            return None


def compile_or_fail(version: Path, root: Path | str | None) -> CompiledVersion | Report:
    """Compiles a manifest that was named on the command line.

    Raises:
        CommandError: the manifest cannot be read, or the host fails.
    """
    try:
        return compile_version(version, root)
    except FolderError as error:
        raise CommandError(_refusal(error, version, root), code=ExitCode.USAGE) from None
    except OSError as error:
        name = printable(str(error.filename or version))
        raise CommandError(f"`{name}` cannot be read: {os.strerror(error.errno or 0)}") from None


def _refusal(error: FolderError, version: Path, root: Path | str | None) -> str:
    name = printable(os.fspath(version))
    match error.refusal:
        case "missing":
            return f"`{name}` does not exist"
        case "outside":
            return f"`{name}` is not below the root `{printable(os.fspath(root or ''))}`"
        case "link":
            return f"`{printable(error.path)}` is a link, and links are not followed"
        case "not_a_folder":
            return f"`{printable(error.path)}` is not a folder"
        case "not_a_file":
            return f"`{name}` is not a regular file"
        case "too_large":
            return f"`{name}` is too large"


def _write(compiled: CompiledVersion, output: Path | None, bundles: Path | None) -> None:
    if output is not None:
        check_replaceable(output)
        _refuse_to_replace(output)
        bundles = bundles or output.parent / BUNDLES_FOLDER
    if bundles is not None:
        _write_bundles(compiled.bundles, bundles)
    # The plan comes last: whoever sees it finds its bundles there.
    if output is None:
        try:
            sys.stdout.buffer.write(compiled.plan.to_bytes())
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise CommandError(f"standard output cannot be written: {reason}") from None
        return
    write_atomically(output, compiled.plan.to_bytes())
    print(f"{printable(os.fspath(output))}: {summary(compiled.plan)}", file=sys.stderr)


def _refuse_to_replace(output: Path) -> None:
    """Keeps a slip of the hand (`-o version.yaml`) from replacing an author's file by a plan.

    Raises:
        CommandError: there is a file, and it is no plan.
    """
    if not output.exists() or output.stat().st_size == 0:
        return
    if PLAN_FAMILY not in output.read_bytes():
        raise CommandError(
            f"`{printable(os.fspath(output))}` is there and is no plan, so it is not replaced",
            "give `-o` another name, or remove the file first",
            ExitCode.USAGE,
        )


def _write_bundles(bundles: Mapping[str, bytes], folder: Path) -> None:
    for digest, data in bundles.items():
        write_atomically(folder / bundle_file(digest), data, make_folder=True)


def bundle_file(digest: str) -> str:
    """Returns the name of a bundle's file in a folder of bundles."""
    return f"{digest.removeprefix('sha256:')}.tar.gz"


def summary(plan: Plan) -> str:
    """Says in one line what a plan holds: tools by policy, bundles, digest."""
    policies = Counter(tool.policy for grant in plan.grants for tool in grant.tools)
    counts = [f"{policies[policy]} {policy}" for policy in POLICIES if policies[policy]]
    total = policies.total()
    tools = f"{total} {'tool' if total == 1 else 'tools'}"
    listed = f" ({', '.join(counts)})" if counts else ""
    return f"{tools}{listed}, {plan.digest}"
