"""Credentials from the vault actor: fetched per request, sealed on their way through Ray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray.exceptions import RayError

from subako_ray.executor.cluster.plain import value_of
from subako_ray.executor.credentials import (
    Credential,
    CredentialAnswer,
    CredentialProvider,
    NoCredential,
)
from subako_ray.executor.errors import ExecutorError
from subako_ray.vault.access import Miss
from subako_ray.vault.sealing import Recipient


class SealedProvider:
    """Bound to one session by a capability that is good for its plan's targets only."""

    def __init__(self, vault: Any, session_id: str, capability: str) -> None:
        """Takes the vault actor's handle."""
        self._vault = vault
        self._session_id = session_id
        self._capability = capability

    async def fetch(self, target: str) -> CredentialAnswer:
        """Asks the vault actor now; the answer is sealed to a key made for this request."""
        recipient = Recipient(self._session_id, target)
        try:
            reply = await self._vault.fetch.remote(self._capability, target, recipient.public_key)
        except RayError as error:
            raise ExecutorError(
                "internal", f"the vault cannot be asked ({type(error).__name__})"
            ) from None
        answer = value_of(reply)
        if isinstance(answer, Miss):
            near = f" ({answer.near_miss})" if answer.near_miss else ""
            return NoCredential(reason=f"{answer.message}{near}")
        return Credential(credential_id=answer.credential_id, token=recipient.unseal(answer))


class ActorCredentials:
    """Opens and closes sessions' access at the vault actor."""

    def __init__(self, vault: Any) -> None:
        """Takes the vault actor's handle."""
        self._vault = vault
        self._capabilities: dict[str, str] = {}

    async def open(
        self, session_id: str, vaults: Sequence[str], targets: frozenset[str], principal: str
    ) -> CredentialProvider:
        """See `CredentialAccess.open`."""
        capability = value_of(
            await self._vault.open.remote(session_id, tuple(vaults), tuple(targets), principal)
        )
        self._capabilities[session_id] = capability
        return SealedProvider(self._vault, session_id, capability)

    async def close(self, session_id: str) -> None:
        """Makes the session's capability useless."""
        capability = self._capabilities.pop(session_id, None)
        if capability is not None:
            await self._vault.close.remote(capability)
