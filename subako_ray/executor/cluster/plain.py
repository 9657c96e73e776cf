"""Errors cross Ray as plain data: every actor method answers `Done` or `Refused`.

An exception that crosses Ray may arrive as another type or not at all, and its text lands in the
caller's logs. So our errors travel as values, and a foreign exception travels as its type's name.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, ParamSpec, TypeAlias, TypeVar

from subako_ray.executor.errors import ErrorCode, ExecutorError

_LOGGER: Final = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The method's value."""

    value: T


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An `ExecutorError` as data."""

    code: ErrorCode
    message: str
    help_text: str | None


Reply: TypeAlias = Done[T] | Refused


def refused(error: ExecutorError) -> Refused:
    """Turns an error into data."""
    return Refused(code=error.code, message=error.message, help_text=error.help_text)


def value_of(reply: Reply[T]) -> T:
    """Turns a reply back into a value or an error.

    Raises:
        ExecutorError: as the actor refused.
    """
    match reply:
        case Done(value=value):
            return value
        case Refused():
            raise ExecutorError(reply.code, reply.message, reply.help_text)


def plain(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[Reply[Any]]]:
    """Makes an async actor method answer with data whatever happens in it."""

    @functools.wraps(method)
    async def answered(*args: P.args, **kwargs: P.kwargs) -> Reply[Any]:
        try:
            return Done(await method(*args, **kwargs))
        except ExecutorError as error:
            return refused(error)
        except Exception as error:  # noqa: BLE001 - nothing foreign may cross
            name = type(error).__name__
            _LOGGER.error("%s broke: %s", method.__name__, name)
            return Refused(code="internal", message=f"the host broke ({name})", help_text=None)

    return answered
