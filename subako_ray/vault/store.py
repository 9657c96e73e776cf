"""The store's file: vaults and encrypted credentials in SQLite, read afresh for every use.

A connection lives for one use, so that what another process writes is seen by the next one, and
any thread may use a `Store`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from subako_ray.vault.envelope import Envelope
from subako_ray.vault.errors import StoreError
from subako_ray.vault.records import Credential, Vault

SCHEMA_VERSION: Final = 1
BUSY_SECONDS: Final = 10.0

# The columns stand in the order of the fields of `Vault` and `Credential`.
_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE key (id TEXT NOT NULL) STRICT;
CREATE TABLE vault (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  creator TEXT NOT NULL,
  principals TEXT NOT NULL,
  created_at TEXT NOT NULL,
  seal BLOB NOT NULL
) STRICT;
CREATE TABLE credential (
  id TEXT PRIMARY KEY,
  vault_id TEXT NOT NULL REFERENCES vault (id),
  protocol TEXT NOT NULL,
  target TEXT NOT NULL,
  auth_scheme TEXT NOT NULL,
  display_name TEXT,
  version INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  wrapped_key BLOB NOT NULL,
  payload BLOB NOT NULL,
  UNIQUE (vault_id, protocol, target)
) STRICT;
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


class StoredVault(NamedTuple):
    """A vault and the seal over its contents."""

    vault: Vault
    seal: bytes


class StoredCredential(NamedTuple):
    """A credential and its encrypted payload."""

    credential: Credential
    envelope: Envelope


class Transaction:
    """One consistent view of the store; whether it can write, its maker decided."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def key_id(self) -> str | None:
        """Returns the id of the key the store is encrypted with; None before its first use."""
        row = self._connection.execute("SELECT id FROM key").fetchone()
        return None if row is None else row[0]

    def set_key_id(self, key_id: str) -> None:
        """Binds a new store to its key."""
        self._connection.execute("INSERT INTO key VALUES (?)", (key_id,))

    def vaults(self) -> tuple[StoredVault, ...]:
        """Returns all vaults by name."""
        rows = self._connection.execute("SELECT * FROM vault ORDER BY name")
        return tuple(map(_vault, rows))

    def vault_named(self, name: str) -> StoredVault | None:
        """Returns the vault of this name."""
        return next((stored for stored in self.vaults() if stored.vault.name == name), None)

    def vault(self, vault_id: str) -> StoredVault | None:
        """Returns the vault of this id."""
        return next((stored for stored in self.vaults() if stored.vault.id == vault_id), None)

    def credentials(self, vault_id: str) -> tuple[StoredCredential, ...]:
        """Returns the credentials of a vault by target."""
        rows = self._connection.execute(
            "SELECT * FROM credential WHERE vault_id = ? ORDER BY target, id",
            (vault_id,),
        )
        return tuple(map(_credential, rows))

    def put_vault(self, vault: Vault, seal: bytes) -> None:
        """Writes a new vault, or new principals and a new seal of one that is there."""
        self._connection.execute(
            "INSERT INTO vault VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) "
            "DO UPDATE SET principals = excluded.principals, seal = excluded.seal",
            (
                vault.id,
                vault.name,
                vault.creator,
                json.dumps(vault.principals),
                vault.created_at,
                seal,
            ),
        )

    def put_credential(self, credential: Credential, envelope: Envelope) -> None:
        """Writes a credential in place of the one with the same id."""
        readable = dataclasses.astuple(credential)
        self._connection.execute(
            "INSERT OR REPLACE INTO credential VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*readable, envelope.wrapped_key, envelope.payload),
        )

    def delete_credential(self, credential_id: str) -> None:
        """Deletes a credential; its bytes in the file are overwritten."""
        self._connection.execute("DELETE FROM credential WHERE id = ?", (credential_id,))


class Store:
    """The file of the vaults, and the key file's place beside it.

    Attributes:
        folder: private to its owner (mode 0700).
        key_path: where the key file lies.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key_path = folder / "key"
        self._path = folder / "vaults.sqlite"

    def exists(self) -> bool:
        """Says whether anything was ever stored."""
        return self._path.exists()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction | None]:
        """Opens a view of the store; None when nothing was ever stored.

        Raises:
            StoreError: the store cannot be used.
        """
        if not self.exists():
            yield None
            return
        with self._connected() as connection, self._transaction(connection, "BEGIN") as view:
            yield view

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Opens the store to change it, making it when it is new; one writer at a time.

        What is written stays if the block ends well, and nothing of it if not.

        Raises:
            StoreError: the store cannot be used.
        """
        self._make()
        with (
            self._connected() as connection,
            self._transaction(connection, "BEGIN IMMEDIATE") as transaction,
        ):
            yield transaction

    def _make(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            # SQLite gives its other files the mode of this one.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            os.close(os.open(self._path, flags, 0o600))
        except OSError:
            raise StoreError(f"the vault store `{self._path}` cannot be made") from None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        self._check_private()
        with _sqlite_errors(self._path):
            connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            with _sqlite_errors(self._path), self._locked():
                self._prepare(connection)
            yield connection
        finally:
            connection.close()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        # What is deleted or replaced is overwritten, not left in free pages.
        connection.execute("PRAGMA secure_delete = ON")
        if _schema_version(connection) == 0:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)
        version = _schema_version(connection)
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"the vault store `{self._path}` has format {version}, "
                f"this Subako reads format {SCHEMA_VERSION}",
                "use the Subako that wrote it, or a newer one",
            )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # SQLite does not wait for others while it turns a new file to WAL, so they wait here.
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _transaction(self, connection: sqlite3.Connection, begin: str) -> Iterator[Transaction]:
        # A block that ends in an exception leaves the rollback to the closing of the connection.
        with _sqlite_errors(self._path):
            connection.execute(begin)
            yield Transaction(connection)
            connection.execute("COMMIT")

    def _check_private(self) -> None:
        try:
            status = self.folder.lstat()
        except OSError:
            raise StoreError(f"the vault folder `{self.folder}` cannot be read") from None
        if not stat.S_ISDIR(status.st_mode):
            raise StoreError(f"the vault folder `{self.folder}` is not a folder")
        if status.st_uid != os.geteuid():
            raise StoreError(
                f"the vault folder `{self.folder}` belongs to another user",
                "run this as the user that made the vault",
            )
        if stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            raise StoreError(
                f"the vault folder `{self.folder}` is open to other users",
                f"find out who has used it, then close it with `chmod 700 {self.folder}`",
            )


def _schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextlib.contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        what = "is in use by another process" if busy else "cannot be read or written"
        raise StoreError(f"the vault store `{path}` {what}") from None
    except sqlite3.Error:
        raise StoreError(
            f"the vault store `{path}` is damaged", "restore it from a backup"
        ) from None


def _vault(row: tuple[str, str, str, str, str, bytes]) -> StoredVault:
    vault_id, name, creator, principals, created_at, seal = row
    try:
        listed = tuple(map(str, json.loads(principals)))
    except (ValueError, TypeError):
        listed = ()  # The seal does not fit this either, so it cannot pass for an empty list.
    vault = Vault(id=vault_id, name=name, creator=creator, principals=listed, created_at=created_at)
    return StoredVault(vault, seal)


def _credential(row: tuple[Any, ...]) -> StoredCredential:
    *readable, wrapped_key, payload = row
    names = (field.name for field in dataclasses.fields(Credential))
    credential = Credential(**dict(zip(names, readable, strict=True)))
    return StoredCredential(credential, Envelope(wrapped_key=wrapped_key, payload=payload))
