"""Keeping vaults: credentials are added, replaced, listed and removed; principals are let in."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from subako_ray.schema.secret import Secret
from subako_ray.schema.target import McpTarget
from subako_ray.vault.envelope import check_contents, encrypt, seal_contents
from subako_ray.vault.errors import (
    KeyFileError,
    NotPermittedError,
    StoreError,
    UnknownVaultError,
    VaultSealedError,
)
from subako_ray.vault.key import VaultKey, load_key, make_key
from subako_ray.vault.records import Credential, Vault, VaultListing
from subako_ray.vault.rules import check_display_name, check_token, check_vault_name
from subako_ray.vault.store import Store, Transaction

FOLDER: Final = "vault"
"""The store's folder in a state folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What `Vaults.add` did.

    Attributes:
        credential: as it is now; its version is above 1 when a payload was replaced.
        new_key: the key file, when this made it.
    """

    credential: Credential
    new_key: Path | None


class Vaults:
    """The vaults of one state folder, for whoever may change them."""

    def __init__(self, state: Path) -> None:
        """Names the state folder; nothing is made before the first `add`.

        Args:
            state: an existing folder that only its owner can write.
        """
        self._store = Store(state / FOLDER)

    def check(self, vault: str, target: str, display_name: str | None = None) -> None:
        """Checks what `add` is told beside the token, before anybody is asked for that.

        Raises:
            TargetError: the target is none.
            RefusedError: a name breaks a rule.
        """
        check_vault_name(vault)
        McpTarget.parse(target)
        if display_name is not None:
            check_display_name(display_name)

    def add(
        self,
        vault: str,
        target: str,
        token: Secret,
        *,
        principal: str,
        display_name: str | None = None,
    ) -> Added:
        """Stores a bearer token for an MCP server, in place of the one that is there.

        A vault that does not exist is made, with `principal` as its creator.

        Args:
            vault: the vault's name.
            target: the server's URL; stored in normal form.
            token: the credential.
            principal: who asks.
            display_name: shown in listings; None keeps the one that is there.

        Raises:
            TargetError: the target is none.
            VaultError: names or token break a rule, the vault is another's, or it cannot be used.
        """
        self.check(vault, target, display_name)
        normal = str(McpTarget.parse(target))
        check_token(token)
        now = _now()
        with self._store.writing() as transaction:
            key, new_key = self._key_for_adding(transaction)
            stored = transaction.vault_named(vault)
            if stored is None:
                changed = Vault(
                    id=_new_id("vlt"),
                    name=vault,
                    creator=principal,
                    principals=(principal,),
                    created_at=now,
                )
                held: tuple[Credential, ...] = ()
            else:
                changed = stored.vault
                held = _checked(key, transaction, changed, stored.seal, principal)
            old = _for_target(held, normal)
            credential = Credential(
                id=_new_id("crd") if old is None else old.id,
                vault_id=changed.id,
                protocol="mcp",
                target=normal,
                auth_scheme="static_bearer",
                display_name=old.display_name if old and display_name is None else display_name,
                version=1 if old is None else old.version + 1,
                created_at=now if old is None else old.created_at,
                updated_at=now,
            )
            kept = tuple(other for other in held if other is not old)
            transaction.put_vault(changed, seal_contents(key, changed, (*kept, credential)))
            transaction.put_credential(credential, encrypt(key, credential, token))
        return Added(credential=credential, new_key=new_key)

    def listing(self, vault: str | None = None) -> tuple[VaultListing, ...]:
        """Lists vaults by name and their credentials by target; needs no key, holds no payload.

        Args:
            vault: lists this vault alone.

        Raises:
            VaultError: there is no such vault, or the store cannot be used.
        """
        if vault is not None:
            check_vault_name(vault)
        with self._store.reading() as view:
            listings = () if view is None else tuple(_listings(view, vault))
        if vault is not None and not listings:
            raise unknown_vault(vault)
        return listings

    def remove(self, vault: str, target: str, *, principal: str) -> Credential:
        """Removes the credential for an MCP server; sessions miss it from their next call on.

        Raises:
            TargetError: the target is none.
            VaultError: there is no such credential, the vault is another's, or it cannot be used.
        """
        check_vault_name(vault)
        normal = str(McpTarget.parse(target))
        if not self._store.exists():
            raise unknown_vault(vault)
        with self._store.writing() as transaction:
            key, changed, held = self._for_change(transaction, vault, principal)
            removed = _for_target(held, normal)
            if removed is None:
                raise UnknownVaultError(
                    f"the vault `{vault}` has no credential for `{normal}`",
                    f"`subako vault list {vault}` shows what it has",
                )
            kept = tuple(other for other in held if other is not removed)
            transaction.delete_credential(removed.id)
            transaction.put_vault(changed, seal_contents(key, changed, kept))
        return removed

    def authorize(self, vault: str, principal: str, *, by: str) -> None:
        """Lets a principal make sessions with a vault.

        Args:
            vault: the vault's name.
            principal: who is let in.
            by: who asks; only the vault's creator may.

        Raises:
            VaultError: there is no such vault, it is another's, or it cannot be used.
        """
        self._set_principals(vault, by, add={principal}, drop=set())

    def withdraw(self, vault: str, principal: str, *, by: str) -> None:
        """Takes back what `authorize` gave; running sessions miss from their next call on.

        Raises:
            VaultError: there is no such vault, it is another's, or it cannot be used.
        """
        self._set_principals(vault, by, add=set(), drop={principal})

    def _set_principals(self, name: str, by: str, *, add: set[str], drop: set[str]) -> None:
        check_vault_name(name)
        if not self._store.exists():
            raise unknown_vault(name)
        with self._store.writing() as transaction:
            key, vault, held = self._for_change(transaction, name, by)
            principals = tuple(sorted(({*vault.principals} | add) - drop))
            changed = dataclasses.replace(vault, principals=principals)
            transaction.put_vault(changed, seal_contents(key, changed, held))

    def _for_change(
        self, transaction: Transaction, name: str, principal: str
    ) -> tuple[VaultKey, Vault, tuple[Credential, ...]]:
        stored = transaction.vault_named(name)
        if stored is None:
            raise unknown_vault(name)
        key = unlock(self._store, transaction)
        return key, stored.vault, _checked(key, transaction, stored.vault, stored.seal, principal)

    def _key_for_adding(self, transaction: Transaction) -> tuple[VaultKey, Path | None]:
        if transaction.key_id() is not None:
            return unlock(self._store, transaction), None
        # Nothing is stored yet. A key that is there already was put back by its owner: keep it.
        try:
            key, new_key = load_key(self._store.key_path), None
        except VaultSealedError:
            try:
                key, new_key = make_key(self._store.key_path), self._store.key_path
            except OSError:
                raise StoreError(
                    f"the key file `{self._store.key_path}` cannot be written"
                ) from None
        transaction.set_key_id(key.id)
        return key, new_key


def unlock(store: Store, view: Transaction) -> VaultKey:
    """Reads the key file of a store that is in use.

    Raises:
        VaultSealedError: there is none.
        KeyFileError: it may not be used, or is another store's.
    """
    key = load_key(store.key_path)
    if key.id != view.key_id():
        raise KeyFileError(
            f"the key file `{store.key_path}` is not the key of this vault store",
            f"put the copy of the key with the id `{view.key_id()}` back",
        )
    return key


def _checked(
    key: VaultKey, transaction: Transaction, vault: Vault, seal: bytes, principal: str
) -> tuple[Credential, ...]:
    held = tuple(stored.credential for stored in transaction.credentials(vault.id))
    check_contents(key, vault, held, seal)
    if vault.creator != principal:
        raise NotPermittedError(f"the vault `{vault.name}` can be changed by its creator alone")
    return held


def _for_target(credentials: Iterable[Credential], target: str) -> Credential | None:
    return next((one for one in credentials if one.target == target), None)


def _listings(view: Transaction, name: str | None) -> Iterable[VaultListing]:
    for vault, _ in view.vaults():
        if name is None or vault.name == name:
            credentials = tuple(stored.credential for stored in view.credentials(vault.id))
            yield VaultListing(vault=vault, credentials=credentials)


def unknown_vault(name: str) -> UnknownVaultError:
    """Makes the error for a well-formed name that no vault has."""
    return UnknownVaultError(f"there is no vault `{name}`", "`subako vault list` shows the vaults")


def _new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
