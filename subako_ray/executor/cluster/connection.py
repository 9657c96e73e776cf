"""The driver's way into a Ray cluster: start one here or join one, and find Subako's actors."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import RayActorError, RayError

from subako_ray.executor.cluster.actors import SandboxHostActor, SessionHostActor, VaultActor
from subako_ray.executor.cluster.plain import Reply, value_of
from subako_ray.executor.cluster.session_handle import SessionHandle
from subako_ray.executor.errors import ExecutorError
from subako_ray.executor.session_host import CreatedSession, SessionRequest
from subako_ray.sandbox.spec import IsolationSettings

NAMESPACE: Final = "subako"
_OBJECT_STORE_BYTES: Final = 128 * 1024 * 1024
_CALLS_AT_ONCE: Final = 10_000
_REACH_SECONDS: Final = 5
_TOKEN_FILE: Final = Path.home() / ".ray" / "auth_token"


class Cluster:
    """A connection to a Ray cluster and the actors of one state folder on it."""

    def __init__(self, host: Any, vault: Any, sandboxes: Any, *, local: bool) -> None:
        """Takes the actors' handles; use `connect`."""
        self._host = host
        self._vault = vault
        self._sandboxes = sandboxes
        self._local = local

    @classmethod
    async def connect(
        cls, state: Path, settings: IsolationSettings, *, address: str | None = None
    ) -> Cluster:
        """Starts a cluster on this machine, or joins the one at `address`.

        Args:
            state: folder of the stores, on the node where the actors run.
            settings: of the jails.
            address: of a running cluster, e.g. `127.0.0.1:6379` or `auto`.

        Raises:
            ExecutorError: `internal` when the cluster cannot be reached or an actor cannot start.
        """
        if not (os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")):
            _make_token_file(_TOKEN_FILE)
        if address is None:
            _start_here()
        else:
            await _join(address)
        # Whoever shares a cluster shares actors only when they share the state folder as well.
        mark = hashlib.sha256(f"{state}\0{sorted(asdict(settings).items())}".encode()).hexdigest()[
            :12
        ]

        def named(actor: Any, name: str) -> Any:
            return actor.options(
                name=f"{name}-{mark}",
                namespace=NAMESPACE,
                get_if_exists=True,
                lifetime="detached",
                max_concurrency=_CALLS_AT_ONCE,
            )

        vault = named(VaultActor, "vault").remote(str(state))
        sandboxes = named(SandboxHostActor, "sandboxes").remote(settings)
        host = named(SessionHostActor, "sessions").remote(str(state), settings, vault, sandboxes)
        return cls(host, vault, sandboxes, local=address is None)

    async def create_session(self, request: SessionRequest) -> SessionHandle:
        """Makes a session.

        Raises:
            ExecutorError: see `SessionHost.create`.
        """
        creating = asyncio.ensure_future(self._create(request))
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            # The host makes it all the same, and nobody else would know that it is there.
            with contextlib.suppress(ExecutorError):
                await (await creating).end(cancelled=True, requested_by=request.principal)
            raise

    async def _create(self, request: SessionRequest) -> SessionHandle:
        try:
            reply: Reply[CreatedSession] = await self._host.create.remote(request)
        except RayActorError as error:
            raise ExecutorError(
                "internal", f"the session host did not start ({type(error).__name__})"
            ) from None
        return SessionHandle(self._host, value_of(reply))

    @property
    def log_folder(self) -> Path:
        """Ray's own session folder on this machine, where its logs are."""
        context = ray.get_runtime_context()
        return Path(context.get_temp_dir()) / context.get_session_name()

    async def close(self) -> None:
        """Leaves the cluster; one that was started here ends, with every jail of it."""
        if self._local:
            for actor in (self._host, self._sandboxes):
                try:
                    await actor.close.remote()
                except RayError:
                    continue
        ray.shutdown()


def _start_here() -> None:
    _init(
        "Ray could not start here",
        address="local",
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
    )


async def _join(address: str) -> None:
    # Ray itself waits for minutes for a cluster that is not there.
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        try:
            async with asyncio.timeout(_REACH_SECONDS):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.close()
        except (OSError, TimeoutError, OverflowError):
            raise ExecutorError("internal", f"nothing answers at `{address}`") from None
    _init(f"Ray could not be joined at `{address}`", address=address)


def _init(failure: str, **options: Any) -> None:
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        ray.init(namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (RuntimeError, ValueError, OSError, RayError) as error:
        raise ExecutorError(
            "internal",
            f"{failure} ({type(error).__name__})",
            "is it running, and is its token in RAY_AUTH_TOKEN_PATH or `~/.ray/auth_token`?",
        ) from None


def _make_token_file(path: Path) -> None:
    """Makes the file with the cluster's token private, before Ray makes it readable to all.

    Whoever has the token runs code on the cluster.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        path.chmod(0o600)
        return
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
