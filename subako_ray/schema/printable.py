"""Foreign text made safe to print: terminal control and bidi characters become escapes."""

from __future__ import annotations

import unicodedata

# Cc control, Cf format (bidi and zero-width), Cs surrogate, Co private, Zl and Zp separators.
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""Returns the text with everything that could steer a terminal or hide text as `\u{…}`.

    Newlines and tabs are escaped too: what is printed stays on its line.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{{{ord(character):x}}}"
        if unicodedata.category(character) in _ESCAPED_CATEGORIES
        else character
        for character in text
    )
