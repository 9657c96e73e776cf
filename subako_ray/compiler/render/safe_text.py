"""Text of a report made safe to show: no credential, nothing that steers a terminal."""

from __future__ import annotations

import posixpath
from typing import Final

from subako_ray.compiler.credential_shapes import MASK, masked
from subako_ray.compiler.diagnostic import Report
from subako_ray.schema.printable import printable

_SHORTEST_SECRET: Final = 6
"""A shorter one is hidden where it stands, but not in words that happen to hold it."""


class SafeText:
    """Makes messages, notes, help and paths of one report safe to show."""

    def __init__(self, report: Report) -> None:
        """Learns the secrets of the report's sources."""
        secrets = {
            source.text[secret.start : secret.end]
            for source in report.sources.values()
            for secret in source.secrets
        }
        self._shown_root = report.shown_root
        # The longest first: a secret may hold another.
        self._secrets = sorted((s for s in secrets if len(s) >= _SHORTEST_SECRET), key=len)[::-1]

    def path(self, path: str) -> str:
        """Returns the path of a source as the user would name it, safe to show."""
        return self(posixpath.join(self._shown_root, path))

    def __call__(self, text: str) -> str:
        """Returns the text on one line, with secrets starred and control characters escaped."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return printable(masked(text))
