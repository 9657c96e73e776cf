"""`subako vault`: keeps the credentials that sessions are run with.

A secret comes from a prompt, from stdin or from a file, never from an argument: arguments are
seen by every process of the machine. As one may be typed there by mistake, no message of this
command repeats what it did not understand.
"""

from __future__ import annotations

import argparse
import dataclasses
import getpass
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Final, NoReturn

from subako_ray.cli.command import CommandError, ExitCode
from subako_ray.cli.state import state_folder
from subako_ray.schema.secret import Secret
from subako_ray.schema.target import TargetError
from subako_ray.vault import (
    Added,
    NotPermittedError,
    RefusedError,
    TokenRefusedError,
    UnknownVaultError,
    VaultError,
    VaultListing,
    Vaults,
    current_principal,
)
from subako_ray.vault.rules import TOKEN_BYTES

EXAMPLES: Final = """\
examples:
  subako vault add acme https://mcp.example.com/orders
  pass show acme/orders | subako vault add acme https://mcp.example.com/orders --stdin
  subako vault add acme https://mcp.example.com/orders --from-file token.txt
  subako vault list acme --json
  subako vault remove acme https://mcp.example.com/orders

A credential is for the exact URL: only the case of scheme and host and a default port
make no difference. The secret is never an argument.
"""

_READ_BYTES: Final = 4 * TOKEN_BYTES
"""More than any secret has in UTF-8, so that one cut here is too long all the same."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors do not repeat the arguments, as one of them may be a secret."""

    def error(self, message: str) -> NoReturn:
        refuse_arguments(message)


def refuse_arguments(message: str) -> NoReturn:
    """Ends on a wrong command line without repeating anything of it.

    Raises:
        CommandError: always.
    """
    # The only message of argparse that names parameters alone and quotes no argument.
    missing = message.startswith("the following arguments are required: ")
    raise CommandError(
        message if missing else "the arguments of `subako vault` are not understood",
        "see `subako vault --help`; a secret is given at the prompt, with `--stdin` or with "
        "`--from-file FILE`, and is never an argument"
        + ("" if missing else " (change it if you typed it as one)"),
        ExitCode.USAGE,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the subcommands `add`, `list` and `remove`."""
    parser.epilog = EXAMPLES
    # The parser comes ready made, so its way to fail is replaced here and not in a subclass.
    parser.error = refuse_arguments  # type: ignore[method-assign]
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=_Parser
    )

    add = actions.add_parser(
        "add",
        help="store a bearer token, or replace the one that is there",
        description="store a bearer token, or replace the one that is there",
        allow_abbrev=False,
    )
    _add_vault_and_target(add)
    source = add.add_mutually_exclusive_group()
    source.add_argument("--stdin", action="store_true", help="read the secret from stdin")
    source.add_argument("--from-file", metavar="FILE", help="read the secret from a file")
    add.add_argument("--display-name", metavar="NAME", help="shown in listings")
    _add_state(add)

    listing = actions.add_parser(
        "list",
        help="list vaults and their credentials, without the secrets",
        description="list vaults and their credentials, without the secrets",
        allow_abbrev=False,
    )
    listing.add_argument("vault", metavar="VAULT", nargs="?", help="this vault alone")
    listing.add_argument("--json", action="store_true", help="print JSON")
    _add_state(listing)

    remove = actions.add_parser(
        "remove",
        help="remove a credential",
        description="remove a credential",
        allow_abbrev=False,
    )
    _add_vault_and_target(remove)
    _add_state(remove)


def run(arguments: argparse.Namespace) -> int:
    """Does what the subcommand says."""
    vaults = Vaults(state_folder(arguments.state))
    try:
        match arguments.action:
            case "add":
                _add(vaults, arguments)
            case "list":
                _list(vaults, arguments)
            case "remove":
                _remove(vaults, arguments)
            case unknown:
                raise AssertionError(unknown)
    except TargetError as error:
        raise CommandError(
            error.message,
            "give the server's URL exactly as the version names it",
            ExitCode.USAGE,
        ) from None
    except RefusedError as error:
        raise CommandError(error.message, error.help_text, ExitCode.USAGE) from None
    except (TokenRefusedError, UnknownVaultError, NotPermittedError) as error:
        raise CommandError(error.message, error.help_text, ExitCode.PROBLEMS) from None
    except VaultError as error:
        raise CommandError(error.message, error.help_text, ExitCode.HOST) from None
    return ExitCode.CLEAN


def _add_vault_and_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("vault", metavar="VAULT", help="the vault's name")
    parser.add_argument("target", metavar="TARGET", help="URL of the MCP server it is for")


def _add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        metavar="DIR",
        help="folder of the stores (default: $XDG_STATE_HOME/subako or ~/.local/state/subako)",
    )


def _add(vaults: Vaults, arguments: argparse.Namespace) -> None:
    # Before the secret is asked for, so that nobody types one in vain.
    vaults.check(arguments.vault, arguments.target, arguments.display_name)
    added = vaults.add(
        arguments.vault,
        arguments.target,
        _read_secret(arguments),
        principal=current_principal(),
        display_name=arguments.display_name,
    )
    _tell_added(arguments.vault, added)


def _list(vaults: Vaults, arguments: argparse.Namespace) -> None:
    listings = vaults.listing(arguments.vault)
    if arguments.json:
        print(json.dumps({"vaults": [_as_json(listing) for listing in listings]}, indent=2))
    elif not listings:
        print("there is no vault yet; `subako vault add` makes one", file=sys.stderr)
    else:
        _print_table(listings)


def _remove(vaults: Vaults, arguments: argparse.Namespace) -> None:
    removed = vaults.remove(arguments.vault, arguments.target, principal=current_principal())
    print(f"removed the credential for {removed.target} from {arguments.vault}", file=sys.stderr)


def _read_secret(arguments: argparse.Namespace) -> Secret:
    if arguments.from_file is not None:
        return _from_file(arguments.from_file)
    terminal = sys.stdin.isatty()
    if arguments.stdin and terminal:
        raise CommandError(
            "`--stdin` reads a pipe or a file, and stdin is a terminal that shows what is typed",
            "leave `--stdin` out to be asked without an echo",
            ExitCode.USAGE,
        )
    if arguments.stdin:
        return _from_bytes(sys.stdin.buffer.read(_READ_BYTES))
    if not terminal:
        raise CommandError(
            "there is no terminal to ask for the secret",
            "give it with `--stdin` or `--from-file FILE`",
            ExitCode.USAGE,
        )
    return _from_prompt()


def _from_file(name: str) -> Secret:
    # The name is not repeated either: the secret may have been typed in its place.
    try:
        with open(name, "rb") as file:
            return _from_bytes(file.read(_READ_BYTES))
    except FileNotFoundError:
        message = "the file of `--from-file` does not exist"
    except (OSError, ValueError):
        message = "the file of `--from-file` cannot be read"
    raise CommandError(message, code=ExitCode.PROBLEMS)


def _from_bytes(content: bytes) -> Secret:
    # Bytes that are no UTF-8 become surrogates, which the rule for tokens refuses.
    return Secret(content.removesuffix(b"\n").decode("utf-8", "surrogateescape"))


def _from_prompt() -> Secret:
    try:
        with warnings.catch_warnings():
            # `getpass` warns and goes on with an echo when it cannot turn it off.
            warnings.simplefilter("error", getpass.GetPassWarning)
            return Secret(getpass.getpass("secret (not shown): "))
    except getpass.GetPassWarning:
        message = "this terminal would show the secret"
    except (EOFError, UnicodeDecodeError):
        message = "no secret was given"
    raise CommandError(message, "give it with `--stdin` or `--from-file FILE`", ExitCode.PROBLEMS)


def _tell_added(vault: str, added: Added) -> None:
    credential = added.credential
    if credential.version == 1:
        said = f"stored the credential for {credential.target} in {vault}"
    else:
        said = (
            f"replaced the credential for {credential.target} in {vault} "
            f"(now version {credential.version})"
        )
    print(said, file=sys.stderr)
    if added.new_key is not None:
        print(
            f"note: made the vault key `{added.new_key}`\n"
            "  it decrypts every credential stored here: without it they are lost\n"
            "  help: copy it to a safe place apart from the backups of the state folder, "
            f"e.g. `install -m 600 {added.new_key} /media/safe/subako-vault-key`",
            file=sys.stderr,
        )


def _as_json(listing: VaultListing) -> dict[str, object]:
    vault = dataclasses.asdict(listing.vault)
    credentials = []
    for credential in listing.credentials:
        fields = dataclasses.asdict(credential)
        del fields["vault_id"]
        credentials.append(fields)
    return {**vault, "credentials": credentials}


def _print_table(listings: Sequence[VaultListing]) -> None:
    rows = [("VAULT", "TARGET", "VERSION", "UPDATED", "NAME")]
    for listing in listings:
        if not listing.credentials:
            rows.append((listing.vault.name, "(no credentials)", "", "", ""))
        rows.extend(
            (
                listing.vault.name,
                credential.target,
                str(credential.version),
                credential.updated_at,
                credential.display_name or "",
            )
            for credential in listing.credentials
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        )
