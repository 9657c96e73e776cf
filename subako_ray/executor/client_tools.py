"""A client's side: an application offers its own Python functions as tools of a session.

A file given to `subako run --client` defines one:

    CLIENT = Client("storefront")

    @CLIENT.tool(description="Show a notice", parameters={"type": "object", ...})
    def show_notice(arguments: dict[str, Any]) -> str: ...
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.nesting import nests_deeper
from subako_ray.executor.sources.client import ClientResult
from subako_ray.schema import limits
from subako_ray.schema.canonical import CanonicalError, canonical_bytes
from subako_ray.schema.events import ClientToolDescriptor
from subako_ray.schema.foreign_schema import SchemaNotUsableError, SchemaValidator
from subako_ray.schema.names import RESERVED_GRANT_NAMES, is_grant_name

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

ToolFunction: TypeAlias = Callable[[dict[str, Any]], str | Awaitable[str]]


class ClientToolError(Exception):
    """Raised by a client's function: its text is the error the model reads."""


def check_registration(name: str, tools: tuple[ClientToolDescriptor, ...]) -> None:
    """Refuses a client that may not register under the product's limits.

    Raises:
        ExecutorError: `invalid_request`, naming what is wrong.
    """
    if not is_grant_name(name):
        raise ExecutorError(
            "invalid_request",
            f"`{name[:64]}` is no client name",
            "use 1 to 32 lower-case letters, digits and hyphens",
        )
    if name in RESERVED_GRANT_NAMES:
        raise ExecutorError("invalid_request", f"the client name `{name}` is reserved")
    if len(tools) > limits.CLIENT_TOOLS:
        raise ExecutorError(
            "invalid_request", f"client `{name}` has more than {limits.CLIENT_TOOLS} tools"
        )
    for tool in tools:
        where = f"tool `{tool.name[:64]}` of client `{name}`"
        if not _TOOL_NAME.fullmatch(tool.name):
            raise ExecutorError(
                "invalid_request",
                f"{where} has a name that is not allowed",
                "use 1 to 64 letters, digits, `_` and `-`",
            )
        if len(tool.description) > limits.CLIENT_TOOL_DESCRIPTION_CHARACTERS:
            raise ExecutorError("invalid_request", f"{where} has too long a description")
        try:
            SchemaValidator(tool.parameters)
            canonical_bytes([tool.description, tool.parameters])
        except SchemaNotUsableError as error:
            raise ExecutorError("invalid_request", f"{where}: its schema {error}") from None
        except CanonicalError as error:
            raise ExecutorError("invalid_request", f"{where}: {error}") from None
        if nests_deeper(tool.parameters, limits.LOGGED_DEPTH):
            raise ExecutorError("invalid_request", f"{where} has a schema that nests too deep")
    names = [tool.name for tool in tools]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ExecutorError("invalid_request", f"client `{name}` has two tools `{twice}`")


class Client:
    """An application's tools, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._functions: dict[str, ToolFunction] = {}
        self._descriptors: list[ClientToolDescriptor] = []

    def tool(
        self, *, description: str, parameters: dict[str, Any], name: str | None = None
    ) -> Callable[[ToolFunction], ToolFunction]:
        """Declares a function as a tool; it takes the arguments and returns the text."""

        def declare(function: ToolFunction) -> ToolFunction:
            tool_name = name if name is not None else function.__name__
            self._functions[tool_name] = function
            self._descriptors.append(
                ClientToolDescriptor(name=tool_name, description=description, parameters=parameters)
            )
            return function

        return declare

    @property
    def descriptors(self) -> tuple[ClientToolDescriptor, ...]:
        """What the session is told of the tools."""
        return tuple(self._descriptors)

    async def run(self, tool: str, arguments: dict[str, Any]) -> ClientResult:
        """Runs one tool; an exception of the application becomes an error answer."""
        function = self._functions.get(tool)
        if function is None:
            return ClientResult(text=f"there is no tool `{tool}`", is_error=True)
        try:
            if inspect.iscoroutinefunction(function):
                text = await function(arguments)
            else:
                text = await asyncio.to_thread(function, arguments)
            return _result(str(text))
        except ClientToolError as error:
            return _result(str(error), is_error=True)
        except Exception as error:  # noqa: BLE001 - the application's fault is the tool's error
            return _result(f"{type(error).__name__}: {error}", is_error=True)


def _result(text: str, *, is_error: bool = False) -> ClientResult:
    """An answer the session takes: a longer one would be refused, and the call wait for ever."""
    return ClientResult(text=text[: limits.CLIENT_RESULT_CHARACTERS], is_error=is_error)
