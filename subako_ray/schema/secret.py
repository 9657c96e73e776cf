"""A secret value that cannot be printed, pickled or compared by accident."""

from __future__ import annotations

from typing import NoReturn


class Secret:
    """One secret string. `reveal` is the only way to its value.

    Its repr is starred, it refuses pickling (so it cannot cross Ray), and it does not
    compare equal to anything but itself.
    """

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value

    def reveal(self) -> str:
        """Returns the value, for the code that makes the outgoing request."""
        return self.__value

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    def __format__(self, format_spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self
