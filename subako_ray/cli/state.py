"""The state folder: where stores lie that outlive a command, private to their owner."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from subako_ray.cli.command import CommandError, ExitCode


def state_folder(argument: str | None) -> Path:
    """Returns the state folder as an absolute path, making it (mode 0700) when it is not there.

    Args:
        argument: what `--state` says; None for `$XDG_STATE_HOME/subako`, or without that
            `~/.local/state/subako` (XDG Base Directory Specification 0.8).

    Raises:
        CommandError: it cannot be made, or others than its owner, this user, can write it.
    """
    folder = _default_folder() if argument is None else Path(argument)
    if not folder.parts or "\0" in str(folder):
        raise CommandError("the state folder's name is empty or no path", code=ExitCode.USAGE)
    folder = folder.absolute()
    try:
        # Parents get the usual mode: `--state` may name a folder of a shared tree.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except FileExistsError:
        raise CommandError(f"the state folder `{folder}` is not a folder") from None
    except OSError:
        raise CommandError(
            f"the state folder `{folder}` cannot be made",
            "name a folder that you can write with `--state DIR`",
        ) from None
    if status.st_uid != os.geteuid():
        raise CommandError(
            f"the state folder `{folder}` belongs to another user",
            "name a folder of your own with `--state DIR`",
        )
    if stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise CommandError(
            f"the state folder `{folder}` can be written by other users",
            f"close it with `chmod go-w {folder}`, or name another with `--state DIR`",
        )
    return folder


def _default_folder() -> Path:
    # The specification has relative values ignored.
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if base.is_absolute():
        return base / "subako"
    try:
        return Path.home() / ".local" / "state" / "subako"
    except RuntimeError:
        raise CommandError(
            "this user has no home folder for the state", "name a folder with `--state DIR`"
        ) from None
