"""Staging: the host's folders as a jail may see them, in the jailer's own mount namespace.

A jail's mounts are made by a process that is already the jail's user, so it cannot reach a source
below a folder closed to others. The jailer can: it shows each source once, read-only and without
submounts, at a place that is open to all and that only it and its jails see.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from subako_ray.sandbox import kernel

STAGE: Final = "/sys/kernel"
"""Covered by the stage in the jailer's namespace: always there, and never holds a source."""

KEPT: Final = 64
"""Sources kept staged; each one makes every new mount namespace a little dearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSource:
    """Where a source can be bound from."""

    path: str
    is_folder: bool


class Stage:
    """The sources staged so far, the least recently used first."""

    def __init__(self) -> None:
        """Covers `STAGE` with an empty file system.

        Raises:
            OSError: this process may not mount.
        """
        kernel.mount_temporary(STAGE, "mode=0711,size=1m,nr_inodes=4096")
        self._number = 0
        self._staged: OrderedDict[tuple[str, int, int], StagedSource] = OrderedDict()

    def show(self, source: Path) -> StagedSource:
        """Stages a source, or finds it staged.

        Raises:
            OSError: it is not there, is neither file nor folder, or cannot be mounted.
        """
        # Links are followed here, once, by the jailer; the mount call itself follows none.
        path = source.resolve(strict=True)
        status = path.stat()
        is_folder = stat.S_ISDIR(status.st_mode)
        if not (is_folder or stat.S_ISREG(status.st_mode)):
            raise OSError(errno.EINVAL, "it is neither a file nor a folder")
        needed = stat.S_IROTH | stat.S_IXOTH if is_folder else stat.S_IROTH
        if os.geteuid() == 0 and status.st_mode & needed != needed:
            # A jail is another user than root, and its mode is what that user meets.
            raise OSError(errno.EACCES, "its mode closes it to other users")
        key = (str(path), status.st_dev, status.st_ino)
        staged = self._staged.get(key)
        if staged is None:
            staged = self._mount(path, is_folder=is_folder)
            self._staged[key] = staged
        self._staged.move_to_end(key)
        return staged

    def trim(self) -> None:
        """Takes away what was not used lately; a jail that runs keeps its own view."""
        while len(self._staged) > KEPT:
            _, staged = self._staged.popitem(last=False)
            kernel.unmount(staged.path)
            _remove(Path(staged.path))

    def _mount(self, path: Path, *, is_folder: bool) -> StagedSource:
        self._number += 1
        target = Path(STAGE, str(self._number))
        if is_folder:
            target.mkdir()
        else:
            target.touch(exist_ok=False)
        try:
            kernel.bind_read_only(str(path), str(target))
        except OSError:
            _remove(target)
            raise
        return StagedSource(path=str(target), is_folder=is_folder)


def _remove(target: Path) -> None:
    if target.is_dir():
        target.rmdir()
    else:
        target.unlink()
