"""What every command shares: its exit codes, and how it says that it cannot go on."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's end means, the same for every command."""

    CLEAN = 0
    PROBLEMS = 1
    """The user's input, or what was asked for, has problems; they were printed."""
    USAGE = 2
    """The command line is wrong."""
    HOST = 3
    """Our fault or the host's: something Subako needs is missing or broke."""


class CommandError(Exception):
    """A command cannot go on: one line for the user, what to do about it, and the exit code."""

    def __init__(
        self, message: str, help_text: str | None = None, code: ExitCode = ExitCode.HOST
    ) -> None:
        super().__init__(message, help_text, code)
        self.message = message
        self.help_text = help_text
        self.code = code
