"""Encryption at rest: a payload under a data key of its own, and the seal over a vault's contents.

Each payload is encrypted with AES-256-GCM under a fresh data key, which is encrypted under the
key file's wrapping key. Both carry everything readable of the record as associated data, so a
payload opens only in the row it was stored in. The seal is an HMAC over the vault and all that is
readable in it, so that principals and rows can be neither added, dropped, renamed nor put back in
an older state one by one.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import secrets
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from subako_ray.schema.secret import Secret
from subako_ray.vault.errors import TamperedError
from subako_ray.vault.key import VaultKey
from subako_ray.vault.records import Credential, Vault

NONCE_BYTES: Final = 12
DATA_KEY_BITS: Final = 256
FORMAT: Final = "subako.vault/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """An encrypted payload: each part is a nonce of 12 bytes and the ciphertext with its tag."""

    wrapped_key: bytes = field(repr=False)
    payload: bytes = field(repr=False)


def encrypt(key: VaultKey, credential: Credential, secret: Secret) -> Envelope:
    """Encrypts the payload of a credential for the one row that says `credential`."""
    data_key = AESGCM.generate_key(DATA_KEY_BITS)
    identity = _identity(credential)
    return Envelope(
        wrapped_key=_encrypt(key.wrapping, data_key, identity),
        payload=_encrypt(data_key, secret.reveal().encode("latin-1"), identity),
    )


def decrypt(key: VaultKey, credential: Credential, envelope: Envelope) -> Secret:
    """Decrypts the payload of a credential.

    Raises:
        TamperedError: this payload was not stored in this row with this key.
    """
    identity = _identity(credential)
    try:
        data_key = _decrypt(key.wrapping, envelope.wrapped_key, identity)
        payload = _decrypt(data_key, envelope.payload, identity)
    except (InvalidTag, ValueError):
        raise TamperedError(
            f"the credential `{credential.id}` is not as it was stored",
            "remove the credential and add it again, and find out who changed the store",
        ) from None
    return Secret(payload.decode("latin-1"))


def seal_contents(key: VaultKey, vault: Vault, credentials: tuple[Credential, ...]) -> bytes:
    """Computes the seal over a vault and the readable part of all its credentials."""
    rows = sorted(dataclasses.astuple(credential) for credential in credentials)
    return hmac.digest(key.contents, _bytes([*dataclasses.astuple(vault), rows]), "sha256")


def check_contents(
    key: VaultKey, vault: Vault, credentials: tuple[Credential, ...], seal: bytes
) -> None:
    """Checks the seal of a vault.

    Raises:
        TamperedError: the vault is not as it was last written with this key.
    """
    if not hmac.compare_digest(seal, seal_contents(key, vault, credentials)):
        raise TamperedError(
            f"the vault `{vault.name}` is not as it was stored",
            "restore the store from a backup, and find out who changed it",
        )


def _identity(credential: Credential) -> bytes:
    return _bytes(list(dataclasses.astuple(credential)))


def _bytes(values: list[object]) -> bytes:
    return json.dumps([FORMAT, *values], separators=(",", ":")).encode("ascii")


def _encrypt(key: bytes, data: bytes, identity: bytes) -> bytes:
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, identity)


def _decrypt(key: bytes, data: bytes, identity: bytes) -> bytes:
    return AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], identity)
