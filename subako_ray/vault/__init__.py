"""The vault: encrypted credentials, matched exactly and handed over sealed."""

from subako_ray.vault.access import Miss, MissReason, VaultAccess
from subako_ray.vault.errors import (
    KeyFileError,
    NotPermittedError,
    RefusedError,
    SealingError,
    StoreError,
    TamperedError,
    TokenRefusedError,
    UnknownCapabilityError,
    UnknownVaultError,
    VaultError,
    VaultSealedError,
)
from subako_ray.vault.principal import current_principal
from subako_ray.vault.records import AuthScheme, Credential, Protocol, Vault, VaultListing
from subako_ray.vault.sealing import Recipient, SealedCredential
from subako_ray.vault.vaults import Added, Vaults

__all__ = [
    "Added",
    "AuthScheme",
    "Credential",
    "KeyFileError",
    "Miss",
    "MissReason",
    "NotPermittedError",
    "Protocol",
    "Recipient",
    "RefusedError",
    "SealedCredential",
    "SealingError",
    "StoreError",
    "TamperedError",
    "TokenRefusedError",
    "UnknownCapabilityError",
    "UnknownVaultError",
    "Vault",
    "VaultAccess",
    "VaultError",
    "VaultListing",
    "VaultSealedError",
    "Vaults",
    "current_principal",
]
