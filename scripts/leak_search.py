"""Searches everything a run wrote for a secret, in the forms that software writes secrets in."""

from __future__ import annotations

import base64
import mmap
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search looked at, and the files that hold the secret."""

    files: int
    size_bytes: int
    found: tuple[Path, ...]


def forms_of(secret: bytes) -> frozenset[bytes]:
    """Returns the secret as it is, in hexadecimal, in base64 at any offset, and for a URL."""
    forms = {secret, secret.hex().encode(), urllib.parse.quote_from_bytes(secret).encode()}
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + secret)
        # The characters at both ends also depend on what stands beside the secret.
        forms.add(encoded[(offset * 8 + 5) // 6 : len(encoded) // 4 * 4 - 4])
    return frozenset(forms)


def holds_any(data: bytes | mmap.mmap, forms: Iterable[bytes]) -> bool:
    """Says whether any of the forms stands in the data."""
    return any(data.find(form) >= 0 for form in forms)


def search(folders: Iterable[Path], secret: bytes) -> Searched:
    """Searches every file below some folders, symbolic links left out.

    Raises:
        OSError: a file cannot be read; what was not searched must not count as clean.
    """
    forms = forms_of(secret)
    files = size_bytes = 0
    found = []
    for path in _files(folders):
        size = path.stat().st_size
        files += 1
        size_bytes += size
        # An empty file cannot be mapped.
        if not size:
            continue
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            if holds_any(content, forms):
                found.append(path)
    return Searched(files=files, size_bytes=size_bytes, found=tuple(found))


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield path
