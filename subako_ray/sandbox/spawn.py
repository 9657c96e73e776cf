"""Starting nsjail so that it waits for its configuration."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CONFIG_DESCRIPTOR: Final = 3
LOG_DESCRIPTOR: Final = 4
RESERVED_DESCRIPTORS: Final = 8
"""Descriptors below this are nsjail's; the jailer keeps its own above them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """An nsjail process that blocks on its configuration, and the jailer's ends of its pipes."""

    process_id: int
    config: int
    log: int
    stderr: int

    def discard(self) -> None:
        """Kills the process before it was configured; its parent reaps it."""
        os.killpg(self.process_id, signal.SIGKILL)
        for descriptor in (self.config, self.log, self.stderr):
            os.close(descriptor)


def reserve_descriptors() -> None:
    """Fills the low descriptors, so that none of the jailer's is one that nsjail gets."""
    while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) < RESERVED_DESCRIPTORS:
        pass
    os.close(descriptor)


def spawn(nsjail: Path, *, stdin: int, stdout: int) -> Spawned:
    """Starts nsjail in a process group of its own, without environment or other descriptors.

    It reads its configuration from a pipe and so does nothing before that is written: the time to
    move it into a cgroup. `--log_fd` stands before `--config` because nsjail would complain about
    a configuration on standard error otherwise, which is the jail's.
    """
    config_read, config_write = os.pipe2(os.O_CLOEXEC)
    log_read, log_write = os.pipe2(os.O_CLOEXEC)
    stderr_read, stderr_write = os.pipe2(os.O_CLOEXEC)
    # Ours only: programs expect pipes that block.
    for descriptor in (config_write, log_read, stderr_read):
        os.set_blocking(descriptor, False)
    try:
        process_id = os.posix_spawn(
            nsjail,
            [
                "nsjail",
                "--log_fd",
                str(LOG_DESCRIPTOR),
                "--config",
                f"/proc/self/fd/{CONFIG_DESCRIPTOR}",
            ],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, stdin, 0),
                (os.POSIX_SPAWN_DUP2, stdout, 1),
                (os.POSIX_SPAWN_DUP2, stderr_write, 2),
                (os.POSIX_SPAWN_DUP2, config_read, CONFIG_DESCRIPTOR),
                (os.POSIX_SPAWN_DUP2, log_write, LOG_DESCRIPTOR),
            ],
            setpgroup=0,
            setsigmask=(),
            # Python ignores these; what is ignored stays so in the programs a process starts.
            setsigdef=(
                signal.SIGPIPE,
                signal.SIGXFSZ,
                signal.SIGINT,
                signal.SIGTERM,
                signal.SIGHUP,
            ),
        )
    except OSError:
        for descriptor in (config_write, log_read, stderr_read):
            os.close(descriptor)
        raise
    finally:
        for descriptor in (config_read, log_write, stderr_write):
            os.close(descriptor)
    return Spawned(process_id=process_id, config=config_write, log=log_read, stderr=stderr_read)
