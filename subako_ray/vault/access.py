"""Sessions' way to credentials: a capability is opened, asked with, and closed.

Only the process that holds secrets has a `VaultAccess`. Code that makes outgoing requests has a
capability, which is good for the targets of one session's plan and nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from pathlib import Path
from typing import Literal, NamedTuple

from subako_ray.schema.limits import VAULTS_PER_SESSION
from subako_ray.schema.target import McpTarget, near_miss
from subako_ray.vault.envelope import check_contents, decrypt
from subako_ray.vault.errors import NotPermittedError, RefusedError, UnknownCapabilityError
from subako_ray.vault.key import VaultKey
from subako_ray.vault.rules import check_vault_name
from subako_ray.vault.sealing import SealedCredential, seal
from subako_ray.vault.store import Store, StoredCredential, StoredVault, Transaction
from subako_ray.vault.vaults import FOLDER, unknown_vault, unlock

MissReason = Literal["no_credential", "not_in_plan", "not_permitted"]
"""No vault has one; the session's plan does not name the target; a vault no longer lets it in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """There is no credential for a request, so nothing may be sent; plain data.

    Attributes:
        message: one line, understandable alone.
        near_miss: one line on a credential that is almost for the target; None without one.
    """

    reason: MissReason
    message: str
    near_miss: str | None = None


class _Session(NamedTuple):
    session_id: str
    principal: str
    vaults: tuple[tuple[str, str], ...]
    """Id and name of each, in the order they are asked."""
    targets: frozenset[McpTarget]


class VaultAccess:
    """Hands credentials out to the sessions of one state folder's vaults.

    It keeps no secret and no key: both are read from the files for each use. So what another
    process adds, replaces or removes counts from the next `fetch` on, and a vault that was sealed
    works again when its key file is back.
    """

    def __init__(self, state: Path) -> None:
        """Names the state folder; it need not hold a vault yet."""
        self._store = Store(state / FOLDER)
        self._sessions: dict[str, _Session] = {}

    def open(
        self,
        session_id: str,
        vault_names: Sequence[str],
        targets: Collection[str],
        principal: str,
    ) -> str:
        """Gives a session the capability for its vaults and the targets of its plan.

        Args:
            session_id: names the session; bound into all that is sealed for it.
            vault_names: asked in this order, the first that has a credential wins.
            targets: the MCP server URLs of the session's plan.
            principal: who makes the session; each vault must list it.

        Returns:
            An opaque random text, good until `close` or the end of this process.

        Raises:
            TargetError: one of the targets is none.
            RefusedError: too many vaults, or a name that no vault can have.
            UnknownVaultError: there is no such vault.
            NotPermittedError: a vault does not list the principal.
            VaultError: the vaults cannot be used.
        """
        if len(vault_names) > VAULTS_PER_SESSION:
            raise RefusedError(
                f"the session names {len(vault_names)} vaults, at most {VAULTS_PER_SESSION} can be"
            )
        for name in vault_names:
            check_vault_name(name)
        normal = frozenset(map(McpTarget.parse, targets))
        vaults = []
        with self._store.reading() as view:
            for name in vault_names:
                stored = None if view is None else view.vault_named(name)
                if view is None or stored is None:
                    raise unknown_vault(name)
                _held(view, stored, unlock(self._store, view))
                if principal not in stored.vault.principals:
                    raise NotPermittedError(
                        f"the vault `{name}` does not let `{principal}` make sessions with it"
                    )
                vaults.append((stored.vault.id, name))
        capability = secrets.token_urlsafe(32)
        self._sessions[capability] = _Session(session_id, principal, tuple(vaults), normal)
        return capability

    def fetch(
        self, capability: str, target: str, recipient_public_key: bytes
    ) -> SealedCredential | Miss:
        """Finds the credential for a request and seals it to its asker.

        Args:
            capability: what `open` returned.
            target: the MCP server's URL.
            recipient_public_key: `Recipient.public_key`, fresh for this request.

        Raises:
            TargetError: the target is none.
            UnknownCapabilityError: it is not, or no longer, good.
            SealingError: the key is none.
            VaultError: the vaults cannot be used; nothing is handed out in their place.
        """
        session = self._sessions.get(capability)
        if session is None:
            raise UnknownCapabilityError("the capability for the session's vaults is not good")
        wanted = McpTarget.parse(target)
        if wanted not in session.targets:
            return Miss(
                reason="not_in_plan", message=f"the session's plan does not name `{wanted}`"
            )
        near = None
        with self._store.reading() as view:
            for vault_id, name in session.vaults:
                stored = None if view is None else view.vault(vault_id)
                if view is None or stored is None:
                    return _not_permitted(name, session)
                key = unlock(self._store, view)
                held = _held(view, stored, key)
                if session.principal not in stored.vault.principals:
                    return _not_permitted(name, session)
                for credential, envelope in held:
                    if credential.protocol == "mcp" and credential.target == str(wanted):
                        secret = decrypt(key, credential, envelope)
                        return seal(credential, secret, session.session_id, recipient_public_key)
                near = near or _nearest(name, wanted, held)
        among = ", ".join(f"`{name}`" for _, name in session.vaults)
        where = f"in {among}" if among else "because the session names no vault"
        return Miss(
            reason="no_credential",
            message=f"there is no credential for `{wanted}` {where}",
            near_miss=near,
        )

    def close(self, capability: str) -> None:
        """Ends a capability; one that is not good any more is no error."""
        self._sessions.pop(capability, None)


def _held(view: Transaction, stored: StoredVault, key: VaultKey) -> tuple[StoredCredential, ...]:
    held = view.credentials(stored.vault.id)
    check_contents(key, stored.vault, tuple(one.credential for one in held), stored.seal)
    return held


def _not_permitted(name: str, session: _Session) -> Miss:
    return Miss(
        reason="not_permitted",
        message=f"the vault `{name}` no longer lets `{session.principal}` use it",
    )


def _nearest(name: str, wanted: McpTarget, held: tuple[StoredCredential, ...]) -> str | None:
    differences = {}
    for credential, _ in held:
        difference = near_miss(wanted, McpTarget.parse(credential.target))
        if difference is not None:
            differences[credential.target] = difference
    if not differences:
        return None
    # By characters, not by folders as RUF071 would have it: `/mcp` is nearer to `/mcpx` than `/a`.
    nearest = max(differences, key=lambda held: len(commonprefix((held, str(wanted)))))  # noqa: RUF071
    return f"the vault `{name}` has a credential that {differences[nearest]}"
