"""Waiting for descriptors, children and times: the jailer's one loop, in one thread.

`asyncio` would do the same for five times the start-up time.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from typing import Final

WAIT_SECONDS: Final = 3600.0
"""More than this at once the kernel does not take; whoever waits longer waits again."""


class Poller:
    """Calls back when a descriptor is ready, and wakes up when a child ends."""

    def __init__(self, on_child: Callable[[], object]) -> None:
        """Takes over the process's `SIGCHLD`."""
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], object]] = {}
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

        def on_wake() -> None:
            os.read(wake_read, 4096)
            on_child()

        self.watch(wake_read, on_wake)
        # Without a handler of Python's the signal does not reach the wake-up pipe.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def watch(
        self, descriptor: int, callback: Callable[[], object], *, writable: bool = False
    ) -> None:
        """Calls `callback` whenever `descriptor` can be read (or written) or has hung up."""
        self._epoll.register(descriptor, select.EPOLLOUT if writable else select.EPOLLIN)
        self._callbacks[descriptor] = callback

    def forget(self, descriptor: int) -> None:
        """Stops watching; does nothing if it is not watched."""
        if self._callbacks.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def wait(self, timeout_seconds: float | None) -> None:
        """Waits for anything, at most so long, and calls back."""
        timeout = -1.0 if timeout_seconds is None else min(max(0.0, timeout_seconds), WAIT_SECONDS)
        for descriptor, _ in self._epoll.poll(timeout):
            # An earlier callback of this round may have closed it.
            callback = self._callbacks.get(descriptor)
            if callback is not None:
                callback()
