"""What a machine's first process says, checked: every byte of it comes out of the jail."""

from __future__ import annotations

import asyncio
import json
import signal
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["FRAME_BYTES", "ExecResult", "ReplyError", "parse_ended", "read_message"]

FRAME_BYTES = 4096
"""How long a reply may be apart from the output that it carries."""

EXIT_CODE_MAX = 255
CUT_BYTES_MAX = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """How a command ended.

    Attributes:
        exit_code: The shell's exit code; None when a signal ended it. 126, with the reason on
            standard error, where the machine had no room left to start a shell.
        signal: The name of that signal, such as `SIGKILL`.
        timed_out: The command was killed, with all that it had started, when its time was up.
        stdout: The first bytes of standard output.
        stderr: The first bytes of standard error.
        stdout_cut_bytes: How many bytes of standard output came after those and were dropped.
        stderr_cut_bytes: The same of standard error.
        duration_seconds: From the request to the reply, as seen from outside the machine.
    """

    exit_code: int | None
    signal: str | None
    timed_out: bool
    stdout: bytes
    stderr: bytes
    stdout_cut_bytes: int
    stderr_cut_bytes: int
    duration_seconds: float


class ReplyError(Exception):
    """The jail sent what the protocol does not allow."""


async def read_message(
    reader: asyncio.StreamReader, limit_bytes: Callable[[], int]
) -> dict[str, object]:
    """Reads one frame: a four-byte big-endian length and a JSON object of that length.

    Args:
        reader: What the jail writes.
        limit_bytes: Asked for the longest acceptable frame once one has begun.

    Raises:
        ReplyError: the frame is too long, or not a JSON object.
        asyncio.IncompleteReadError: the jail closed its end.
    """
    length = int.from_bytes(await reader.readexactly(4), "big")
    if length > limit_bytes():
        raise ReplyError("a reply is too long")
    data = await reader.readexactly(length)
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ReplyError("a reply is not JSON") from error
    if not isinstance(message, dict):
        raise ReplyError("a reply is not a JSON object")
    return message


def parse_ended(
    message: dict[str, object], output_bytes: int, duration_seconds: float
) -> ExecResult:
    """Checks the message that reports a command's end.

    Args:
        message: The message, whose `id` has been found.
        output_bytes: The limit that the command was given for each stream.
        duration_seconds: How long the command took.

    Raises:
        ReplyError: it is anything else.
    """
    if message.get("type") != "ended":
        raise ReplyError("a reply is of no known type")
    timed_out = message.get("timed_out")
    if not isinstance(timed_out, bool):
        raise ReplyError("`timed_out` is not a boolean")
    exit_code = _optional_number(message, "exit_code", EXIT_CODE_MAX)
    signal_number = _optional_number(message, "signal", signal.NSIG)
    return ExecResult(
        exit_code=exit_code,
        signal=None if signal_number is None else _signal_name(signal_number),
        timed_out=timed_out,
        stdout=_output(message, "stdout", output_bytes),
        stderr=_output(message, "stderr", output_bytes),
        stdout_cut_bytes=_optional_number(message, "stdout_cut_bytes", CUT_BYTES_MAX) or 0,
        stderr_cut_bytes=_optional_number(message, "stderr_cut_bytes", CUT_BYTES_MAX) or 0,
        duration_seconds=duration_seconds,
    )


def _optional_number(message: dict[str, object], key: str, highest: int) -> int | None:
    value = message.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise ReplyError(f"`{key}` is not a number that it can be")
    return value


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _output(message: dict[str, object], key: str, limit_bytes: int) -> bytes:
    value = message.get(key)
    if not isinstance(value, str):
        raise ReplyError(f"`{key}` is not text")
    try:
        data = b64decode(value, validate=True)
    except ValueError as error:
        raise ReplyError(f"`{key}` is not base64") from error
    if len(data) > limit_bytes:
        raise ReplyError(f"`{key}` is too long")
    return data
