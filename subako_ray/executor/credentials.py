"""How sources get a credential for the request they are about to make, without seeing a vault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from subako_ray.schema.secret import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A bearer token and the identity of the credential it is from."""

    credential_id: str
    token: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCredential:
    """The session's vaults hold nothing for the target; `reason` says so in one line."""

    reason: str


CredentialAnswer: TypeAlias = Credential | NoCredential


class CredentialProvider(Protocol):
    """Bound to one session: answers only for targets of that session's plan."""

    async def fetch(self, target: str) -> CredentialAnswer:
        """Gets the credential for a target at this moment; nothing is kept between calls."""


class NoVaults:
    """The provider of a session that named no vault."""

    async def fetch(self, target: str) -> CredentialAnswer:
        """Answers that there is none."""
        return NoCredential(reason="the session names no vault")
