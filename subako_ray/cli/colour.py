"""Whether to print in colour."""

from __future__ import annotations

import os
from typing import Literal, TextIO, TypeAlias, get_args

Colour: TypeAlias = Literal["auto", "always", "never"]
COLOURS: tuple[Colour, ...] = get_args(Colour)


def wants_colour(choice: Colour, stream: TextIO) -> bool:
    """Decides by the choice on the command line, then NO_COLOR, FORCE_COLOR, then the terminal."""
    if choice != "auto":
        return choice == "always"
    # Set and not empty: https://no-color.org
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"
