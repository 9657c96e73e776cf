"""Bundles that sessions of this host need: by digest, verified and unpacked once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from subako_ray.executor.errors import ExecutorError
from subako_ray.schema.bundle import BundleError, unpack

_PREFIX: Final = "sha256:"


class BundleStore:
    """Unpacked bundles below one folder of the host's state."""

    def __init__(self, folder: Path) -> None:
        """Makes the store.

        Args:
            folder: created with mode 0700 when missing.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder

    def add(self, bundle: str, data: bytes) -> None:
        """Takes in a bundle as tar.gz and unpacks it, unless it is there.

        Raises:
            ExecutorError: `invalid_request` when it is not what its digest says, or not safe.
        """
        target = self._path(bundle)
        if target.is_dir():
            return
        try:
            unpack(data, bundle, target)
        except BundleError as error:
            raise ExecutorError("invalid_request", f"bundle `{bundle}`: {error}") from None

    def folder(self, bundle: str) -> Path | None:
        """Returns the folder a bundle was unpacked to, or None when it is not here."""
        path = self._path(bundle)
        return path if path.is_dir() else None

    def _path(self, bundle: str) -> Path:
        return self._folder / bundle.removeprefix(_PREFIX)
