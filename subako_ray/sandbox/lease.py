"""Leasing jails: the worker's side of the jailer.

A lease is one socket whose other end is the jailer's. Closing it, or dying, ends the jail.
"""

from __future__ import annotations

import asyncio

from subako_ray.sandbox.spec import IsolationSettings, JailReport, JailSpec


class JailLease:
    """One running jail."""

    reader: asyncio.StreamReader
    """The first process's standard output."""

    writer: asyncio.StreamWriter
    """Its standard input."""

    async def ended(self) -> JailReport:
        """Waits for the jail's own end: it exited, or a limit ended it."""
        raise NotImplementedError

    async def release(self) -> JailReport:
        """Ends the jail if it still runs, and waits (bounded) until nothing of it is left.

        May be called again, and by several tasks; cancelling the caller does not stop it.
        """
        raise NotImplementedError


class Jailer:
    """The helper process that makes and watches this worker's jails."""

    @classmethod
    async def start(cls, settings: IsolationSettings) -> Jailer:
        """Starts the helper and has it try the real jail once.

        Raises:
            JailUnavailable: this host cannot isolate; says what is missing.
        """
        raise NotImplementedError

    async def acquire(self, spec: JailSpec) -> JailLease:
        """Starts a jail.

        Raises:
            JailUnavailable: the jail cannot be made; nothing was run.
        """
        raise NotImplementedError

    async def aclose(self) -> None:
        """Ends every jail and the helper."""
        raise NotImplementedError
