"""Function packages: one call of a stranger's program, in a jail of its own.

The program speaks MCP over stdio. Which version it speaks was found out when the package was
built, so a call of a 2026-07-28 program is a single round trip. No SDK is used here: what comes
out of a jail is read by `stdio_channel`, which trusts nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Generic, Literal, TypeVar, assert_never

from subako_ray.sandbox.guest_kit import GuestKit
from subako_ray.sandbox.lease import Jailer, JailLease
from subako_ray.sandbox.mcp_dialogue import (
    HANDSHAKE_VERSIONS,
    Dialogue,
    RefusedError,
    UnansweredProbeError,
)
from subako_ray.sandbox.spec import BindMount, JailLimits, JailReport, JailSpec
from subako_ray.sandbox.stdio_channel import (
    BadOutputError,
    EndOfOutputError,
    Error,
    OutputLimitError,
    StdioChannel,
)
from subako_ray.schema import limits as bounds
from subako_ray.schema.printable import printable

PACKAGE_TARGET: Final = "/package"
ENDING_SECONDS: Final = 3.0
"""How long a program that closed its output may take to end by itself."""
STDERR_BYTES: Final = 64 * 1024
STDERR_TAIL_CHARACTERS: Final = 300
TEMPORARY_BYTES: Final = 64 * 1024 * 1024
FILE_BYTES: Final = 64 * 1024 * 1024
OPEN_FILES: Final = 256

BrokenReason = Literal[
    "bad_output",
    "exited",
    "timed_out",
    "out_of_memory",
    "output_limit",
    "jail_failed",
    "supervisor_lost",
]
"""Why a program gave no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFolder:
    """An unpacked function package."""

    path: Path
    name: str
    command: tuple[str, ...]
    protocol_version: str | None = None
    """The MCP version the program speaks; None: it is asked first, at the cost of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLimits:
    """What one call may use."""

    timeout_seconds: float = bounds.FUNCTION_TIMEOUT_SECONDS
    memory_mib: int = bounds.FUNCTION_MEMORY_MIB
    processes: int = bounds.FUNCTION_PROCESSES
    output_bytes: int = bounds.REPLY_BYTES
    """Most bytes read of the program's standard output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The program's `tools/call` result, as it came."""

    result: dict[str, object]
    report: JailReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The program's tools as it describes them (MCP `Tool`), and the version it speaks."""

    protocol_version: str
    tools: list[dict[str, object]]
    report: JailReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The program answered with a JSON-RPC error."""

    code: int
    message: str
    report: JailReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The program gave no answer.

    `detail` is one line that names the package. `may_have_run` says whether the program was asked
    to run the tool.
    """

    reason: BrokenReason
    detail: str
    report: JailReport
    may_have_run: bool


FunctionReply = Answered | Refused | Broken
FunctionListing = Listed | Refused | Broken

_Value = TypeVar("_Value")
_Body = Callable[[Dialogue], Coroutine[None, None, _Value]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done(Generic[_Value]):
    """The program answered what was asked."""

    value: _Value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed:
    """The program did not; a reason of None means that the jail's report has it."""

    reason: BrokenReason | None = None
    what: str = ""


class FunctionRunner:
    """Runs programs of function packages, each call in a fresh jail.

    Cancelling a call ends its jail.
    """

    def __init__(self, jailer: Jailer, kit: GuestKit | None = None) -> None:
        """Takes what calls need.

        Args:
            jailer: leases jails.
            kit: the guest kit that every program finds; the installed one by default.
        """
        self._jailer = jailer
        self._kit = kit or GuestKit.load()

    async def call(
        self, package: PackageFolder, tool: str, arguments: bytes, limits: FunctionLimits
    ) -> FunctionReply:
        """Calls one tool.

        Args:
            package: whose tool it is.
            tool: the tool's name as the package reports it.
            arguments: a JSON object as text without a newline; sent verbatim, so that numbers
                survive exactly.
            limits: what the call may use.

        Raises:
            JailUnavailable: when this host cannot isolate.
        """
        if b"\n" in arguments:
            raise ValueError("the arguments hold a newline")

        async def body(dialogue: Dialogue) -> dict[str, object]:
            await dialogue.open()
            return await dialogue.call_tool(tool, arguments)

        end = await self._converse(package, limits, body)
        if isinstance(end, Refused | Broken):
            return end
        result, report = end
        return Answered(result=result, report=report)

    async def list_tools(self, package: PackageFolder, limits: FunctionLimits) -> FunctionListing:
        """Asks a program for its tools and the version it speaks.

        Args:
            package: whom to ask.
            limits: what the question may use.

        Raises:
            JailUnavailable: when this host cannot isolate.
        """

        async def body(dialogue: Dialogue) -> tuple[str, list[dict[str, object]]]:
            return await dialogue.open(), await dialogue.list_tools()

        end = await self._converse(package, limits, body)
        if isinstance(end, Refused | Broken):
            return end
        (version, tools), report = end
        return Listed(protocol_version=version, tools=tools, report=report)

    async def _converse(
        self, package: PackageFolder, limits: FunctionLimits, body: _Body[_Value]
    ) -> tuple[_Value, JailReport] | Refused | Broken:
        try:
            return await self._converse_once(package, limits, body)
        except UnansweredProbeError:
            older = replace(package, protocol_version=HANDSHAKE_VERSIONS[0])
            return await self._converse_once(older, limits, body)

    async def _converse_once(
        self, package: PackageFolder, limits: FunctionLimits, body: _Body[_Value]
    ) -> tuple[_Value, JailReport] | Refused | Broken:
        lease = await self._jailer.acquire(self.spec(package, limits))
        try:
            dialogue = Dialogue(
                StdioChannel(lease.reader, lease.writer, output_bytes=limits.output_bytes),
                package.protocol_version,
                timeout_seconds=limits.timeout_seconds,
            )
            end = await _attempt(lease, dialogue, limits, body)
        finally:
            report = await lease.release()
        match end:
            case _Done(value=value):
                return value, report
            case Error(code=code, message=message):
                return Refused(code=code, message=message, report=report)
            case _Failed():
                return _broken(package, limits, end, report, called=dialogue.called)
            case _:
                assert_never(end)

    def spec(self, package: PackageFolder, limits: FunctionLimits) -> JailSpec:
        """Says what jail a program of this package runs in."""
        program, *arguments = package.command
        if program == "python3":
            # Without `site`: it costs more than all else that Python does at its start, and it
            # would let the host's installed packages in. `-I` and `-E` would hide the kit.
            arguments.insert(0, "-S")
        return JailSpec(
            argv=(program, *arguments),
            cwd=PACKAGE_TARGET,
            environment=self._kit.environment,
            mounts=(BindMount(source=package.path, target=PACKAGE_TARGET), *self._kit.mounts),
            limits=JailLimits(
                wall_seconds=limits.timeout_seconds,
                memory_bytes=limits.memory_mib * 1024 * 1024,
                processes=limits.processes,
                # The wall limit comes first, however many processors a program keeps busy; this
                # one holds when nobody is left to keep the clock.
                cpu_seconds=math.ceil(limits.timeout_seconds) * (os.cpu_count() or 1) + 1,
                file_bytes=FILE_BYTES,
                open_files=OPEN_FILES,
                temporary_bytes=TEMPORARY_BYTES,
                stderr_bytes=STDERR_BYTES,
            ),
        )


async def _attempt(
    lease: JailLease, dialogue: Dialogue, limits: FunctionLimits, body: _Body[_Value]
) -> _Done[_Value] | Error | _Failed:
    try:
        return _Done(value=await body(dialogue))
    except RefusedError as refused:
        return refused.error
    except BadOutputError as error:
        return _Failed(reason="bad_output", what=str(error))
    except OutputLimitError:
        return _Failed(reason="output_limit", what=f"wrote more than {limits.output_bytes} bytes")
    except EndOfOutputError:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await lease.ended()
        return _Failed()


def _broken(
    package: PackageFolder,
    limits: FunctionLimits,
    failed: _Failed,
    report: JailReport,
    *,
    called: bool,
) -> Broken:
    reason, what = failed.reason, failed.what
    if reason is None:
        reason, what = _cause(report, limits)
    tail = _last_line(report.stderr)
    return Broken(
        reason=reason,
        detail=f"function package `{printable(package.name)}` {what}"
        + (f": {tail}" if tail else ""),
        report=report,
        may_have_run=called and reason != "jail_failed",
    )


def _cause(report: JailReport, limits: FunctionLimits) -> tuple[BrokenReason, str]:
    """Says why a program's output ended, from how its jail did."""
    match report.verdict:
        case "exited":
            return "exited", f"exited with code {report.exit_code} before it answered"
        case "signalled":
            return "exited", f"was ended by {report.signal} before it answered"
        case "killed":
            return "exited", "closed its output before it answered"
        case "timed_out":
            return "timed_out", f"did not answer within {limits.timeout_seconds:g} seconds"
        case "out_of_memory":
            return "out_of_memory", f"needed more than {limits.memory_mib} MiB of memory"
        case "output_limit":
            return "output_limit", "wrote too much"
        case "jail_failed":
            return "jail_failed", f"could not be started: {report.detail or 'its jail failed'}"
        case "supervisor_lost":
            return "supervisor_lost", "was ended because its supervisor was lost"
        case _:
            assert_never(report.verdict)


def _last_line(stderr: bytes) -> str:
    """Returns the last line a program wrote to standard error, fit to stand in a message."""
    lines = stderr.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if len(last) > STDERR_TAIL_CHARACTERS:
        last = last[:STDERR_TAIL_CHARACTERS] + "…"
    return printable(last)
