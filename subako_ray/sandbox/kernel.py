"""The few calls of the Linux kernel that Python's `os` lacks.

Numbers are those of the kernel's headers; the three mount calls have the same number on every
architecture (Linux 5.2, and 5.12 for `mount_setattr`).
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

CLONE_NEWNS: Final = 0x0002_0000
CLONE_NEWUSER: Final = 0x1000_0000
CLONE_NEWPID: Final = 0x2000_0000

_MS_NOSUID = 2
_MS_NODEV = 4
_MS_NOEXEC = 8
_MS_REC = 1 << 14
_MS_SLAVE = 1 << 19
_MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_OPEN_TREE = 428
_MOVE_MOUNT = 429
_MOUNT_SETATTR = 442
_OPEN_TREE_CLONE = 1
_OPEN_TREE_CLOEXEC = os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH = 4
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_AT_SYMLINK_NOFOLLOW = 0x100
_MOUNT_ATTR_READ_ONLY_NOSUID_NODEV = 1 | 2 | 4

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    """`struct mount_attr` of `mount_setattr(2)`."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def unshare(flags: int) -> None:
    """Moves this process into new namespaces (`unshare(2)`)."""
    _checked(_libc.unshare(flags), "unshare")


def die_with_parent() -> None:
    """Has the kernel kill this process when the thread that made it ends."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def adopt_orphans() -> None:
    """Makes this process the parent of descendants that lose theirs."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def stop_sharing_mounts() -> None:
    """Keeps this namespace's mounts to itself, while it still follows the host's unmounts."""
    _checked(_libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None), "mount /")


def mount_proc(target: str) -> None:
    """Mounts the process list of this pid namespace."""
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _checked(_libc.mount(b"proc", target.encode(), b"proc", flags, None), f"mount {target}")


def mount_temporary(target: str, options: str) -> None:
    """Mounts an empty file system in memory."""
    flags = _MS_NOSUID | _MS_NODEV
    result = _libc.mount(b"tmpfs", target.encode(), b"tmpfs", flags, options.encode())
    _checked(result, f"mount {target}")


def unmount(target: str) -> None:
    """Takes a mount away; whoever still uses it keeps it."""
    _checked(_libc.umount2(os.fsencode(target), _MNT_DETACH), f"umount {target}")


def bind_read_only(source: str, target: str) -> None:
    """Shows `source` at `target` read-only, without set-id bits, devices or submounts.

    The mount gets its flags before it gets a place, so it is never there without them. In a user
    namespace of its own a process may not take a mount away from above another, so there a source
    with submounts is refused (`EINVAL`).
    """
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_SYMLINK_NOFOLLOW
    tree = _checked(_libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags), source)
    try:
        attributes = _MountAttributes(_MOUNT_ATTR_READ_ONLY_NOSUID_NODEV, 0, 0, 0)
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        reference = ctypes.byref(attributes)
        result = _libc.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, reference, size)
        _checked(result, source)
        place = os.fsencode(target)
        result = _libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, place, _MOVE_MOUNT_F_EMPTY_PATH)
        _checked(result, target)
    finally:
        os.close(tree)
