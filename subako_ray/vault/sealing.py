"""Handing a credential over: sealed with HPKE (RFC 9180) to a key its asker made for this use.

A plain return value stays readable in the memory of Ray's own processes; a sealed one does not.
The seal is bound to session, target and credential, so it opens nowhere else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from subako_ray.schema.secret import Secret
from subako_ray.schema.target import McpTarget
from subako_ray.vault.errors import SealingError
from subako_ray.vault.records import AuthScheme, Credential, Protocol

SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedCredential:
    """A credential on its way to the code that makes the outgoing request; plain data.

    Attributes:
        credential_id: names the credential in logs; no secret.
        version: which payload of the credential this is.
        sealed: what only the asker's key opens.
    """

    credential_id: str
    version: int
    protocol: Protocol
    auth_scheme: AuthScheme
    sealed: bytes = field(repr=False)


class Recipient:
    """The asker's side: a fresh key pair for one credential, for one session and target.

    Usage: make one, pass `public_key` to `VaultAccess.fetch`, then `unseal` the answer, once.
    """

    __slots__ = ("__private_key", "__session_id", "__target", "public_key")

    def __init__(self, session_id: str, target: str) -> None:
        """Makes the key pair.

        Args:
            session_id: the session that asks.
            target: the URL of the MCP server the request goes to.

        Raises:
            TargetError: the target is none.
        """
        self.__session_id = session_id
        self.__target = str(McpTarget.parse(target))
        self.__private_key: X25519PrivateKey | None = X25519PrivateKey.generate()
        self.public_key: bytes = self.__private_key.public_key().public_bytes_raw()
        """32 bytes; not secret."""

    def unseal(self, credential: SealedCredential) -> Secret:
        """Opens the answer and forgets the private key.

        Raises:
            SealingError: it was not sealed to this key for this session and target, or this
                recipient has been used.
        """
        private_key, self.__private_key = self.__private_key, None
        if private_key is None:
            raise SealingError("the recipient of a sealed credential has been used before")
        info = _info(
            self.__session_id,
            self.__target,
            credential.credential_id,
            credential.version,
            credential.protocol,
            credential.auth_scheme,
        )
        try:
            payload = SUITE.decrypt(credential.sealed, private_key, info)
        except (InvalidTag, ValueError):
            raise SealingError(
                "the credential was not sealed to this key for this session and target"
            ) from None
        return Secret(payload.decode("latin-1"))


def seal(
    credential: Credential, secret: Secret, session_id: str, public_key: bytes
) -> SealedCredential:
    """Seals a secret to its asker.

    Args:
        credential: the row the secret is from; its target is the one that was asked for.
        secret: the payload.
        session_id: the session that asks.
        public_key: `Recipient.public_key`.

    Raises:
        SealingError: the key is not an X25519 public key.
    """
    info = _info(
        session_id,
        credential.target,
        credential.id,
        credential.version,
        credential.protocol,
        credential.auth_scheme,
    )
    try:
        recipient = X25519PublicKey.from_public_bytes(public_key)
        sealed = SUITE.encrypt(secret.reveal().encode("latin-1"), recipient, info)
    except ValueError:
        raise SealingError("the recipient's key is not an X25519 public key") from None
    return SealedCredential(
        credential_id=credential.id,
        version=credential.version,
        protocol=credential.protocol,
        auth_scheme=credential.auth_scheme,
        sealed=sealed,
    )


def _info(*values: str | int) -> bytes:
    return json.dumps(["subako.sealed/1", *values], separators=(",", ":")).encode("ascii")
