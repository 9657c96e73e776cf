"""Reading files below one root, and nothing else: no way up, no links, regular files only."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from subako_ray.schema.bundle import BundleFile

SKIPPED_FOLDERS: Final = frozenset({"__pycache__"})
"""What Python leaves behind when a file is imported; no part of a skill or function."""

_FOLDER_DEPTH: Final = 32

Refusal: TypeAlias = Literal[
    "missing", "outside", "link", "not_a_file", "not_a_folder", "too_large"
]


class FolderError(Exception):
    """A path cannot be read; `refusal` says why and `path` where on the way."""

    def __init__(self, refusal: Refusal, path: str) -> None:
        super().__init__(refusal, path)
        self.refusal = refusal
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of a folder is read before reading stops."""

    files: int
    bytes: int


class Folder(Protocol):
    """A view of the files below a root. Paths are relative to it, with `/` between parts."""

    def read(self, path: str, limit: int) -> bytes:
        """Reads a file of at most `limit` bytes.

        Raises:
            FolderError: it is not there, leads out, goes through a link, or is no regular file.
        """

    def files(self, path: str, limits: Limits) -> list[BundleFile]:
        """Reads every file below a folder, in no particular order.

        Raises:
            FolderError: as `read`; also for anything below that is neither file nor folder.
        """


def below(base: str, path: str) -> str:
    """Joins a path onto a folder below the root, and takes `.` and `..` out by name.

    Links are never followed, so names are all there is.

    Raises:
        FolderError: `outside` when the path is absolute or leads above the root.
    """
    if path.startswith("/") or "\0" in path:
        raise FolderError("outside", path)
    parts: list[str] = []
    for part in f"{base}/{path}".split("/"):
        if part == ".." and not parts:
            raise FolderError("outside", path)
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


class RootFolder:
    """The files below a folder of this host."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Names the root; links on the way to the root itself are the caller's choice."""
        self._root = os.fspath(root)

    def read(self, path: str, limit: int) -> bytes:
        """See `Folder.read`."""
        parts = path.split("/")
        with self._descend(parts[:-1], path) as parent:
            return _read_file(parent, parts[-1], path, limit).data

    def files(self, path: str, limits: Limits) -> list[BundleFile]:
        """See `Folder.files`."""
        with self._descend(path.split("/") if path else [], path) as folder:
            found: list[BundleFile] = []
            left = limits.bytes
            for file in _walk(folder, "", left, 0):
                found.append(file)
                left -= len(file.data)
                if left < 0 or len(found) > limits.files:
                    raise FolderError("too_large", file.path)
            return found

    @contextmanager
    def _descend(self, parts: list[str], whole: str) -> Iterator[int]:
        """Opens a folder below the root, one part at a time, so that no link is followed."""
        try:
            descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise FolderError("missing", whole) from None
        try:
            for count, part in enumerate(parts, start=1):
                try:
                    inner = _open_folder(descriptor, part, "/".join(parts[:count]))
                except FolderError as error:
                    # What was asked for does not exist, whichever part is not there.
                    if error.refusal == "missing":
                        raise FolderError("missing", whole) from None
                    raise
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def _open_folder(parent: int, name: str, path: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=parent)
    except OSError as error:
        raise _refused(error, parent, name, path, "not_a_folder") from None


def _read_file(parent: int, name: str, path: str, limit: int) -> BundleFile:
    # O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=parent)
    except OSError as error:
        raise _refused(error, parent, name, path, "not_a_file") from None
    with _closing(descriptor):
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FolderError("not_a_file", path)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(max(limit, 0) + 1)
    if len(data) > limit:
        raise FolderError("too_large", path)
    return BundleFile(path=path, data=data, executable=bool(status.st_mode & stat.S_IXUSR))


def _walk(folder: int, prefix: str, left: int, depth: int) -> Iterator[BundleFile]:
    if depth > _FOLDER_DEPTH:
        raise FolderError("too_large", prefix)
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{prefix}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if entry.name in SKIPPED_FOLDERS:
                continue
            with _closing(_open_folder(folder, entry.name, path)) as inner:
                for file in _walk(inner, f"{path}/", left, depth + 1):
                    left -= len(file.data)
                    yield file
        else:
            file = _read_file(folder, entry.name, path, left)
            left -= len(file.data)
            yield file


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    """Closes a file descriptor when left."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _refused(
    error: OSError, parent: int, name: str, path: str, wrong_kind: Refusal
) -> FolderError | OSError:
    """Says why opening failed; what is the host's fault stays an OSError."""
    match error.errno:
        case errno.ENOENT | errno.ENAMETOOLONG:
            return FolderError("missing", path)
        case errno.ELOOP | errno.ENOTDIR | errno.EISDIR | errno.ENXIO | errno.ENODEV:
            try:
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            except OSError:
                return FolderError("missing", path)
            return FolderError("link" if stat.S_ISLNK(status.st_mode) else wrong_kind, path)
        case _:
            return error
