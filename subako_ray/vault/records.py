"""The records a vault keeps: what is readable of a vault and of a credential."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Protocol = Literal["mcp"]
"""What a credential's target is: the URL of an MCP server."""

AuthScheme = Literal["static_bearer"]
"""How a credential is presented: `Authorization: Bearer` with a token that does not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vault:
    """A named set of credentials.

    Attributes:
        id: random, never reused; a vault made anew under an old name is another vault.
        creator: the principal that made it, and the only one that may change it.
        principals: who may make sessions with it, sorted.
        created_at: RFC 3339, UTC.
    """

    id: str
    name: str
    creator: str
    principals: tuple[str, ...]
    created_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What may be known of a credential without its payload.

    Attributes:
        id: stays the same when the payload is replaced.
        target: in normal form (`schema.target`).
        version: 1, and one more with every replacement.
        created_at: RFC 3339, UTC.
        updated_at: RFC 3339, UTC.
    """

    id: str
    vault_id: str
    protocol: Protocol
    target: str
    auth_scheme: AuthScheme
    display_name: str | None
    version: int
    created_at: str
    updated_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultListing:
    """A vault and its credentials, without payloads."""

    vault: Vault
    credentials: tuple[Credential, ...]
