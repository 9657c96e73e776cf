"""Bundles: the files of a skill or function package as one deterministic tar.gz.

A bundle's identity is the SHA-256 of its uncompressed tar, which is a function of the files alone:
USTAR headers (POSIX.1-1988), regular files only, sorted by name, owner and time zero, mode 0644 or
0755. Reading accepts exactly what writing makes, so links, devices, sparse files and extensions of
the format have no way in. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from subako_ray.schema import limits
from subako_ray.schema.printable import printable

_BLOCK: Final = 512
_NAME_BYTES: Final = 100
_PREFIX_BYTES: Final = 155
_GZIP: Final = 31
"""zlib's window bits for a gzip stream; its header then has no name and time zero."""
_TAR_BYTES: Final = limits.BUNDLE_BYTES + (limits.BUNDLE_FILES + 1) * 2 * _BLOCK

_ODD_TYPES: Final = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"5": "a folder entry",
    b"6": "a named pipe",
    b"S": "a sparse file",
}


class BundleError(ValueError):
    """Files cannot be a bundle, or bytes are none; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFile:
    """One file of a bundle; `path` is relative, with `/` between its parts."""

    path: str
    data: bytes
    executable: bool = False


class Bundle(NamedTuple):
    """A packed bundle: its digest (`sha256:…` over the tar) and its bytes as tar.gz."""

    digest: str
    data: bytes


def pack(files: Iterable[BundleFile]) -> Bundle:
    """Packs files; the same files give the same bytes in whatever order they come.

    Raises:
        BundleError: a name that cannot stand in a bundle, a name used twice, or over the limits.
    """
    tar = _write_tar(files)
    compressor = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    return Bundle(_digest(tar), compressor.compress(tar) + compressor.flush())


def read(data: bytes) -> tuple[BundleFile, ...]:
    """Reads the files of a tar.gz that `pack` made, sorted by name.

    Raises:
        BundleError: it is anything else; the message names the entry.
    """
    return _read_tar(_decompress(data))


def unpack(data: bytes, digest: str, target: Path) -> None:
    """Writes a bundle's files below `target`, all of them or none.

    Args:
        data: the tar.gz.
        digest: what its tar must hash to, `sha256:…`.
        target: a folder that does not exist yet; when it does, it is left as it is.

    Raises:
        BundleError: the digest differs, or the bytes are not a bundle.
        OSError: the disk refuses.
    """
    tar = _decompress(data)
    if _digest(tar) != digest:
        raise BundleError("its digest is not the one it was asked for by")
    files = _read_tar(tar)
    temporary = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target.parent))
    try:
        for file in files:
            _write_file(temporary, file)
        for folder in (temporary, *(path for path in temporary.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
        # Renaming onto a folder with files fails: somebody else unpacked the same digest first.
        with contextlib.suppress(OSError):
            temporary.rename(target)
        if not target.is_dir():
            raise OSError(f"cannot create {target}")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def path_problem(path: str) -> str | None:
    """Says why a file of this relative path cannot be in a bundle; None when it can."""
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "leads out of the bundle or is no plain path"
    if not path.isprintable():
        return "holds a character that cannot be printed"
    if _split_name(path) is None:
        return f"is longer than {_NAME_BYTES} bytes in its last part or {_PREFIX_BYTES} before it"
    return None


def _digest(tar: bytes) -> str:
    return "sha256:" + hashlib.sha256(tar).hexdigest()


def _write_tar(files: Iterable[BundleFile]) -> bytes:
    ordered = sorted(files, key=lambda file: file.path.encode())
    if len(ordered) > limits.BUNDLE_FILES:
        raise BundleError(f"more than {limits.BUNDLE_FILES} files")
    if sum(len(file.data) for file in ordered) > limits.BUNDLE_BYTES:
        raise BundleError(f"more than {limits.BUNDLE_BYTES} bytes")
    _refuse_clashes([file.path for file in ordered])
    pieces = []
    for file in ordered:
        pieces.append(_header(file))
        pieces.append(file.data)
        pieces.append(bytes(-len(file.data) % _BLOCK))
    pieces.append(bytes(2 * _BLOCK))
    return b"".join(pieces)


def _refuse_clashes(paths: list[str]) -> None:
    names = set(paths)
    if len(names) != len(paths):
        twice = next(one for one, other in itertools.pairwise(paths) if one == other)
        raise BundleError(f"`{printable(twice)}` stands twice in it")
    for path in paths:
        parts = path.split("/")
        for end in range(1, len(parts)):
            if (parent := "/".join(parts[:end])) in names:
                raise BundleError(f"`{printable(parent)}` is both a file and a folder")


def _split_name(path: str) -> tuple[bytes, bytes] | None:
    """Splits a path into USTAR's prefix and name fields."""
    whole = path.encode()
    if len(whole) <= _NAME_BYTES:
        return b"", whole
    cut = whole.find(b"/", len(whole) - _NAME_BYTES - 1)
    if cut < 1 or cut > _PREFIX_BYTES or cut == len(whole) - 1:
        return None
    return whole[:cut], whole[cut + 1 :]


def _header(file: BundleFile) -> bytes:
    problem = path_problem(file.path)
    split = _split_name(file.path)
    if problem is not None or split is None:
        raise BundleError(f"`{printable(file.path)}` {problem}")
    prefix, name = split
    mode = b"0000755\0" if file.executable else b"0000644\0"
    before = name.ljust(_NAME_BYTES, b"\0") + mode + b"0000000\0" * 2
    size_and_time = b"%011o\0" % len(file.data) + b"00000000000\0"
    owner = b"\0" * 64
    after = (
        b"0" + bytes(100) + b"ustar\x0000" + owner + b"0000000\0" * 2 + prefix.ljust(155, b"\0")
    ).ljust(_BLOCK - 156, b"\0")
    total = sum(before) + sum(size_and_time) + sum(after) + 8 * ord(" ")
    return before + size_and_time + b"%06o\0 " % total + after


def _decompress(data: bytes) -> bytes:
    stream = zlib.decompressobj(_GZIP)
    try:
        tar = stream.decompress(data, _TAR_BYTES + 1)
    except zlib.error:
        raise BundleError("not a gzip file") from None
    if len(tar) > _TAR_BYTES:
        raise BundleError(f"more than {limits.BUNDLE_BYTES} bytes")
    if not stream.eof or stream.unused_data:
        raise BundleError("cut short, or followed by something else")
    return tar


def _read_tar(tar: bytes) -> tuple[BundleFile, ...]:
    files: list[BundleFile] = []
    offset = 0
    while any(header := tar[offset : offset + _BLOCK]):
        file = _read_entry(tar, offset, header)
        files.append(file)
        if len(files) > limits.BUNDLE_FILES:
            raise BundleError(f"more than {limits.BUNDLE_FILES} files")
        offset += _BLOCK + len(file.data) + -len(file.data) % _BLOCK
    # Whatever else could be odd (order, owners, times, checksums, padding) shows here at once.
    if _write_tar(files) != tar:
        raise BundleError("not in the form that `subako compile` writes")
    return tuple(files)


def _read_entry(tar: bytes, offset: int, header: bytes) -> BundleFile:
    if len(header) < _BLOCK or header[257:263] != b"ustar\0":
        raise BundleError("not a USTAR archive")
    prefix, name = header[345:500].rstrip(b"\0"), header[:_NAME_BYTES].rstrip(b"\0")
    try:
        path = (prefix + b"/" + name if prefix else name).decode()
    except UnicodeDecodeError:
        raise BundleError("a name is not UTF-8") from None
    kind = header[156:157]
    if kind != b"0":
        what = _ODD_TYPES.get(kind, "an extension of the format")
        raise BundleError(f"`{printable(path)}` is {what}")
    if (problem := path_problem(path)) is not None:
        raise BundleError(f"`{printable(path)}` {problem}")
    try:
        size = int(header[124:135], 8)
    except ValueError:
        raise BundleError(f"`{printable(path)}` has a size that is no number") from None
    data = tar[offset + _BLOCK : offset + _BLOCK + size] if size >= 0 else b""
    if len(data) != size:
        raise BundleError(f"`{printable(path)}` is cut short")
    return BundleFile(path=path, data=data, executable=header[100:107] == b"0000755")


def _write_file(folder: Path, file: BundleFile) -> None:
    path = folder / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o755 if file.executable else 0o644
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as opened:
        opened.write(file.data)
    # The umask must not make one host's files differ from another's.
    path.chmod(mode)
