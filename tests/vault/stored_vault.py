"""A state folder whose vault `acme` holds a canary, and a session's way to it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from subako_ray.schema.secret import Secret
from subako_ray.vault import Recipient, SealedCredential, VaultAccess, Vaults

CANARY = "canary-7f1c-never-seen"
OWNER = "user:owner"
URL = "https://h/mcp"


class StoredVault:
    def __init__(self, state: Path) -> None:
        self.state = state
        self.folder = state / "vault"
        self.database = self.folder / "vaults.sqlite"
        self.key = self.folder / "key"
        self.vaults = Vaults(state)
        self.access = VaultAccess(state)
        self.add(CANARY)

    def add(self, token: str, target: str = URL, vault: str = "acme") -> None:
        self.vaults.add(vault, target, Secret(token), principal=OWNER)

    def open(self, *vault_names: str, targets: tuple[str, ...] = (URL,)) -> str:
        return self.access.open("s1", vault_names or ("acme",), targets, OWNER)

    def received(self, capability: str, target: str = URL) -> str:
        """What code that makes a request gets: the token, or `miss: <reason>`."""
        recipient = Recipient("s1", target)
        answer = self.access.fetch(capability, target, recipient.public_key)
        if isinstance(answer, SealedCredential):
            return recipient.unseal(answer).reveal()
        return f"miss: {answer.reason}"

    def sql(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Changes the database as somebody without the key could."""
        connection = sqlite3.connect(self.database)
        try:
            with connection:
                return connection.execute(statement, values).fetchall()
        finally:
            connection.close()
