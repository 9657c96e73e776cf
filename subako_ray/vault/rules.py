"""What may be stored: rules for vault names, display names and bearer tokens.

A value is checked when it is stored, so that none can later make an empty or a split header. No
message repeats what it is about: a secret may have been given in the wrong place.
"""

from __future__ import annotations

import re
from typing import Final

from subako_ray.schema.secret import Secret
from subako_ray.vault.errors import RefusedError, TokenRefusedError

TOKEN_BYTES: Final = 8 * 1024
DISPLAY_NAME_CHARACTERS: Final = 200

_VAULT_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LATIN_1_MAX: Final = "\xff"


def check_vault_name(name: str) -> None:
    """Checks the name of a vault.

    Raises:
        RefusedError: it breaks the rule.
    """
    if not _VAULT_NAME.fullmatch(name):
        raise RefusedError(
            "the vault name is not of the form `[a-z0-9][a-z0-9._-]*` with at most 64 characters"
        )


def check_display_name(name: str) -> None:
    """Checks the name a credential is shown by.

    Raises:
        RefusedError: it is blank, too long, or has a control or a direction character.
    """
    if not name.strip():
        raise RefusedError("the display name is blank")
    if len(name) > DISPLAY_NAME_CHARACTERS:
        raise RefusedError(f"the display name has more than {DISPLAY_NAME_CHARACTERS} characters")
    if not name.isprintable():
        raise RefusedError("the display name has a character that cannot be printed")


def check_token(token: Secret) -> None:
    """Checks that a bearer token can be sent in one HTTP header as it is (RFC 9110, section 5.5).

    Raises:
        TokenRefusedError: it breaks a rule, which the message names.
    """
    value = token.reveal()
    if not value:
        raise TokenRefusedError("the secret is empty")
    if not value.strip():
        raise TokenRefusedError("the secret is blank")
    if "\n" in value or "\r" in value:
        raise TokenRefusedError("the secret has a line break in it")
    if _CONTROL.search(value):
        raise TokenRefusedError("the secret has a control character")
    if max(value) > _LATIN_1_MAX:
        raise TokenRefusedError(
            "the secret has a character outside Latin-1, which no header can carry"
        )
    if value != value.strip():
        raise TokenRefusedError("the secret begins or ends with a blank")
    if len(value) > TOKEN_BYTES:
        raise TokenRefusedError(f"the secret has more than {TOKEN_BYTES} bytes")
