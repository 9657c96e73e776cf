"""The one exception of the executor that callers see; it crosses Ray only as plain data."""

from __future__ import annotations

from typing import Literal

ErrorCode = Literal[
    "forbidden", "not_found", "invalid_request", "conflict", "precondition_failed", "internal"
]
"""The product's error codes."""


class ExecutorError(Exception):
    """The executor refuses or cannot do what was asked.

    Attributes:
        code: one of the product's error codes.
        message: one line, understandable alone.
        help_text: what to do about it, or null.
    """

    def __init__(self, code: ErrorCode, message: str, help_text: str | None = None) -> None:
        super().__init__(code, message, help_text)
        self.code = code
        self.message = message
        self.help_text = help_text

    def __str__(self) -> str:
        return self.message
