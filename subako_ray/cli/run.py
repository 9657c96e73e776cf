"""`subako run`: runs a session of a version or plan on Ray and tells what happens."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from subako_ray.cli.colour import wants_colour
from subako_ray.cli.command import CommandError, ExitCode
from subako_ray.cli.conductor import Conductor
from subako_ray.cli.plan_input import PlanInput, read_plan_input
from subako_ray.cli.script import Entry, read_script
from subako_ray.cli.state import state_folder
from subako_ray.cli.transcript import Line, lines_for
from subako_ray.executor.client_tools import Client
from subako_ray.executor.cluster import Cluster, SessionHandle
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.event_store import encode
from subako_ray.executor.session import ClientRegistration
from subako_ray.executor.session_host import SessionRequest
from subako_ray.sandbox.spec import IsolationSettings
from subako_ray.schema.canonical import CanonicalError, canonical_bytes, parse_json
from subako_ray.schema.events import CatalogueChanged, Record
from subako_ray.schema.names import Kind, split_name
from subako_ray.schema.printable import printable
from subako_ray.vault.principal import current_principal

EPILOG: Final = """\
examples:
  subako run version.yaml --call skill__refund-policy__read '{}'
  subako run plan.json --vault acme --script calls.yaml
  subako run plan.json --vault acme --client shop.py --script calls.yaml --json > events.ndjson
  subako run plan.json --address 10.0.0.5:6379 --script calls.yaml

a script is YAML:
  calls:
    - call: mcp__orders__refund
      arguments: {order_id: A-1001}
      decide: allow                  # or deny, or {deny: "a message for the model"}
      expect: {outcome: succeeded, contains: "refunded"}
    - call: builtin__ask_user__ask
      arguments: {message: "Sure?", schema: {type: object, properties: {sure: {type: boolean}}}}
      answer: {action: accept, content: {sure: true}}

exit codes:
  0  every call ended as expected (`succeeded` where nothing is said)
  1  one did not, or the version, plan or script has problems
  2  wrong usage
  3  this host or the cluster cannot run the session
"""


def _open_what_is_closed() -> None:
    # Else the next socket would take the number, and `print` has nowhere to write.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - for the process's life
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - for the process's life
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115 - for the process's life


class _Application(NamedTuple):
    path: str
    client: Client


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument("version", metavar="VERSION_OR_PLAN", help="a manifest or compiled plan")
    parser.add_argument(
        "--call",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "JSON"),
        help="make this call; may be repeated",
    )
    parser.add_argument("--script", metavar="FILE", help="make the calls of a script")
    parser.add_argument(
        "--vault",
        action="append",
        default=[],
        metavar="NAME",
        help="use this vault's credentials; may be repeated, the first match wins",
    )
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="FILE.py",
        help="offer the tools of the `Client` this file defines; may be repeated",
    )
    parser.add_argument(
        "--root", metavar="DIR", type=Path, help="folder that the version's paths stay in"
    )
    parser.add_argument("--state", metavar="DIR", help="folder of the stores")
    parser.add_argument("--address", metavar="HOST:PORT", help="join this Ray cluster")
    parser.add_argument(
        "--limits",
        choices=("enforced", "best-effort"),
        default="enforced",
        help="what to do where this host cannot enforce a limit of a jail (default: refuse)",
    )
    parser.add_argument("--nsjail", metavar="PATH", type=Path, help="the nsjail binary to use")
    parser.add_argument("--json", action="store_true", help="print the events, one a line")


def run(arguments: argparse.Namespace) -> int:
    """Checks everything that can be checked, then runs the session."""
    _open_what_is_closed()
    output = sys.stdout
    # What applications print is not of the transcript or the events.
    with contextlib.redirect_stdout(sys.stderr):
        return _run(arguments, output)


def _run(arguments: argparse.Namespace, output: TextIO) -> int:
    entries = _entries(arguments)
    state = state_folder(arguments.state)
    plan_input = read_plan_input(Path(arguments.version), arguments.root)
    if plan_input is None:
        return ExitCode.PROBLEMS
    applications = [_Application(path, _load_client(path)) for path in arguments.client]
    _refuse_unknown_grants(entries, plan_input, applications)
    settings = IsolationSettings(nsjail=arguments.nsjail, limits=arguments.limits)
    try:
        return asyncio.run(
            _session(arguments, entries, plan_input, applications, state, settings, output)
        )
    except asyncio.CancelledError:
        print("stopped", file=sys.stderr)
        return 128 + signal.SIGTERM
    except ExecutorError as error:
        code = (
            ExitCode.HOST
            if error.code in ("internal", "precondition_failed")
            else ExitCode.PROBLEMS
        )
        raise CommandError(error.message, error.help_text, code) from None


def _stop_when_told() -> None:
    """Makes a request to end, and a terminal that is gone, end the session as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)


async def _session(
    arguments: argparse.Namespace,
    entries: list[Entry],
    plan_input: PlanInput,
    applications: list[_Application],
    state: Path,
    settings: IsolationSettings,
    output: TextIO,
) -> int:
    _stop_when_told()
    started = time.monotonic()
    where = f"joining Ray at {arguments.address}" if arguments.address else "starting Ray here"
    _progress(f"{where} (a few seconds) ...")
    cluster = await Cluster.connect(state, settings, address=arguments.address)
    # Again: Ray has taken the signals for itself meanwhile.
    _stop_when_told()
    try:
        _progress(f"creating the session ({time.monotonic() - started:.1f} s) ...")
        session = await cluster.create_session(
            SessionRequest(
                plan=plan_input.plan.to_bytes(),
                bundles=plan_input.bundles,
                vaults=tuple(arguments.vault),
                clients=tuple(
                    ClientRegistration(name=a.client.name, tools=a.client.descriptors)
                    for a in applications
                ),
                principal=current_principal(),
            )
        )
        try:
            _refuse_unknown_tools(entries, session.created.catalogue)
        except CommandError:
            await session.end(cancelled=True, requested_by=current_principal())
            raise
        problems = await _conduct(arguments, entries, applications, session, output)
    finally:
        await cluster.close()
    for problem in problems:
        print(f"problem: {printable(problem)}", file=sys.stderr)
    if not arguments.json:
        print(f"log: session {session.session_id} in {state / 'events.db'}", file=output)
    return ExitCode.PROBLEMS if problems else ExitCode.CLEAN


async def _conduct(
    arguments: argparse.Namespace,
    entries: list[Entry],
    applications: list[_Application],
    session: SessionHandle,
    output: TextIO,
) -> list[str]:
    colour = wants_colour("auto", output)

    def show(record: Record) -> None:
        if arguments.json:
            print(encode(record), file=output, flush=True)
            return
        for line in lines_for(record):
            print(line.render(colour=colour), file=output, flush=True)

    def note(text: str) -> None:
        if not arguments.json:
            line = Line("note", f"\n# {printable(text)}")
            print(line.render(colour=colour), file=output, flush=True)

    conductor = Conductor(
        session=session,
        principal=current_principal(),
        show=show,
        note=note,
        interactive=sys.stdin.isatty(),
    )
    clients = {
        registered.client_id: application.client
        for registered, application in zip(session.created.clients, applications, strict=True)
    }
    return await conductor.run(entries, clients)


def _entries(arguments: argparse.Namespace) -> list[Entry]:
    entries: list[Entry] = []
    for name, text in arguments.call:
        try:
            value = parse_json(text)
            canonical_bytes(value)
        except CanonicalError as error:
            raise CommandError(
                f"the arguments of `--call {printable(name)}` are wrong: {error}",
                code=ExitCode.USAGE,
            ) from None
        if not isinstance(value, dict):
            raise CommandError(
                f"the arguments of `--call {printable(name)}` are not a JSON object",
                'write them like \'{"order_id": "A-1001"}\'',
                ExitCode.USAGE,
            )
        entries.append(Entry(call=name, arguments=value))
    if arguments.script is not None:
        entries += read_script(Path(arguments.script)).calls
    if not entries:
        raise CommandError(
            "there is no call to make", "give `--call NAME JSON` or `--script FILE`", ExitCode.USAGE
        )
    return entries


def _load_client(path: str) -> Client:
    """Loads an application's own file, which runs here with the user's rights."""
    spec = importlib.util.spec_from_file_location("subako_client_application", path)
    if not Path(path).is_file():
        raise CommandError(f"the client `{path}` is not a file", code=ExitCode.USAGE)
    if spec is None or spec.loader is None:
        raise CommandError(f"the client `{path}` is no Python file", code=ExitCode.USAGE)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up there.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises is shown
        why = printable(f"{type(error).__name__}: {error}")
        raise CommandError(
            f"the client `{path}` cannot be loaded: {why}",
            code=ExitCode.PROBLEMS,
        ) from None
    found = [value for value in vars(module).values() if isinstance(value, Client)]
    if len(found) != 1:
        count = len(found) or "no"
        raise CommandError(
            f"the client `{path}` defines {count} client{'s' if len(found) > 1 else ''}",
            'define one, as `CLIENT = Client("name")`',
            ExitCode.PROBLEMS,
        )
    return found[0]


def _refuse_unknown_grants(
    entries: Sequence[Entry], plan_input: PlanInput, applications: Sequence[_Application]
) -> None:
    """Refuses calls that no grant or client can answer, before anything starts."""
    grants: set[tuple[Kind, str]] = {(grant.kind, grant.name) for grant in plan_input.plan.grants}
    # A client's name may get a counter in the session, but the first to ask has it.
    grants |= {("client", application.client.name) for application in applications}
    for entry in entries:
        name = split_name(entry.call)
        if name is None:
            raise CommandError(
                f"`{printable(entry.call)}` is no tool name",
                "write it as `<kind>__<grant>__<tool>`, e.g. `mcp__orders__lookup`",
                ExitCode.PROBLEMS,
            )
        if (name.kind, name.grant) not in grants:
            known = ", ".join(sorted(f"{kind}__{grant}" for kind, grant in grants))
            raise CommandError(
                f"`{printable(entry.call)}`: no grant or client `{name.kind}__{name.grant}`",
                f"there are: {known or 'none'}",
                ExitCode.PROBLEMS,
            )


def _refuse_unknown_tools(entries: Sequence[Entry], catalogue: CatalogueChanged) -> None:
    """Refuses calls of tools that the sources, which were asked meanwhile, do not have."""
    known = {tool.name for tool in catalogue.tools}
    silent = {state.source for state in catalogue.unavailable}
    for entry in entries:
        name = split_name(entry.call)
        if name is None or entry.call in known or f"{name.kind}:{name.grant}" in silent:
            continue
        prefix = f"{name.kind}__{name.grant}__"
        offered = ", ".join(sorted(tool for tool in known if tool.startswith(prefix)))
        raise CommandError(
            f"there is no tool `{printable(entry.call)}`",
            f"`{name.kind}__{name.grant}` has: {printable(offered) or 'no tools'}",
            ExitCode.PROBLEMS,
        )


def _progress(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)
