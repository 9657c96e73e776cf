"""What can go wrong with a vault. No message or attribute ever holds a secret.

Arguments are positional and all passed on to `Exception`, so that each error crosses process
borders with its type intact.
"""

from __future__ import annotations


class VaultError(Exception):
    """A vault cannot do what was asked: one line, and what to do about it."""

    def __init__(self, message: str, help_text: str | None = None) -> None:
        super().__init__(message, help_text)
        self.message = message
        self.help_text = help_text

    def __str__(self) -> str:
        return self.message


class RefusedError(VaultError):
    """A name, or the number of them, breaks a rule."""


class TokenRefusedError(VaultError):
    """A token breaks a rule, so it is not stored."""


class UnknownVaultError(VaultError):
    """There is no vault, or no credential in it, of that name or target."""


class NotPermittedError(VaultError):
    """The principal may not do this with the vault."""


class UnknownCapabilityError(VaultError):
    """The capability was never given out, or was closed, or its vault process has restarted."""


class VaultSealedError(VaultError):
    """The key file is missing, so nothing can be read or added."""


class KeyFileError(VaultError):
    """The key file may not be used: others can read it, or it is not this store's key."""


class StoreError(VaultError):
    """The store's file cannot be used."""


class TamperedError(VaultError):
    """What the store holds is not what was stored with this key."""


class SealingError(VaultError):
    """A credential could not be sealed to its asker, or not unsealed by it."""
