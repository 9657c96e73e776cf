"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from subako_ray.cli.command import CommandError, ExitCode
from subako_ray.schema.printable import printable


def check_replaceable(path: Path) -> None:
    """Makes sure that a path can become a file of ours, before any work is done for it.

    Raises:
        CommandError: it is a folder or a device, or its folder does not exist.
    """
    if not path.parent.is_dir():
        name = printable(os.fspath(path.parent))
        raise CommandError(f"the folder `{name}` does not exist", code=ExitCode.USAGE)
    # Replacing a device such as /dev/null would remove it from the host.
    if path.exists() and not path.is_file():
        name = printable(os.fspath(path))
        raise CommandError(f"`{name}` is not a regular file", code=ExitCode.USAGE)


def write_atomically(path: Path, data: bytes, *, make_folder: bool = False) -> None:
    """Replaces the file at once; a reader sees the old bytes or the new ones.

    Raises:
        CommandError: the host refuses.
    """
    temporary = path.parent / f".{path.name}.{os.urandom(6).hex()}"
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        check_replaceable(path)
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        name = printable(os.fspath(path))
        raise CommandError(f"`{name}` cannot be written: {reason}") from None
