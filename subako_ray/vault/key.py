"""The key file: 32 random bytes that everything in the store is encrypted and authenticated with.

It is only ever a file of its owner's, never an environment variable or an argument.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Final, NoReturn

from subako_ray.vault.errors import KeyFileError, VaultSealedError

KEY_BYTES: Final = 32

_FORMAT: Final = b"subako.key/1"
_FILE_BYTES: Final = 1024


class VaultKey:
    """The keys derived from a key file, one for each use.

    Attributes:
        id: names the key file without telling anything of it.
        wrapping: encrypts the data key of each record (AES-256).
        contents: authenticates what a vault holds (HMAC-SHA-256).
    """

    __slots__ = ("contents", "id", "wrapping")

    def __init__(self, root: bytes) -> None:
        self.id = _derive(root, b"id").hex()[:32]
        self.wrapping = _derive(root, b"wrapping")
        self.contents = _derive(root, b"contents")

    def __repr__(self) -> str:
        return f"VaultKey({self.id})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a VaultKey cannot be pickled")


def load_key(path: Path) -> VaultKey:
    """Reads a key file.

    Raises:
        VaultSealedError: there is none.
        KeyFileError: it is not a private file of this user, or holds no key.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise VaultSealedError(
            f"the vault is sealed: its key file `{path}` is missing",
            f"to unseal it, put your copy of the key back as `{path}` with mode 0600",
        ) from None
    except OSError:
        raise KeyFileError(f"the key file `{path}` is not a file that can be read") from None
    with open(descriptor, "rb") as file:
        _check_private(path, os.fstat(descriptor))
        content = file.read(_FILE_BYTES)
    return VaultKey(_decode(path, content))


def make_key(path: Path) -> VaultKey:
    """Writes a new key file, whole or not at all.

    The caller holds the store's write lock and has seen that there is no key file.

    Raises:
        OSError: it could not be written.
    """
    root = secrets.token_bytes(KEY_BYTES)
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(_FORMAT + b" " + base64.b64encode(root) + b"\n")
        file.flush()
        os.fsync(descriptor)
    # A link, unlike a rename, never replaces a key that is already there.
    path.hardlink_to(unfinished)
    unfinished.unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return VaultKey(root)


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileError(f"the key file `{path}` is not a file that can be read")
    if status.st_uid != os.geteuid():
        raise KeyFileError(
            f"the key file `{path}` belongs to another user",
            "run this as the user that made the vault",
        )
    if stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileError(
            f"the key file `{path}` is open to other users",
            f"find out who has read it, then close it with `chmod 600 {path}`",
        )


def _decode(path: Path, content: bytes) -> bytes:
    name, _, encoded = content.partition(b" ")
    root = b""
    with contextlib.suppress(binascii.Error):
        root = base64.b64decode(encoded.removesuffix(b"\n"), validate=True)
    if name != _FORMAT or len(root) != KEY_BYTES:
        raise KeyFileError(
            f"the key file `{path}` holds no vault key",
            "put your copy of the key back; a vault cannot be read without it",
        )
    return root


def _derive(root: bytes, use: bytes) -> bytes:
    # HKDF-Expand of one block (RFC 5869, section 2.3); the root is uniformly random already.
    return hmac.digest(root, b"subako.vault/1 " + use + b"\x01", "sha256")
