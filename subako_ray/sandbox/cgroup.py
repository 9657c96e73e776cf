"""Cgroups: one leaf per jail, which limits it as a whole and finds every process of it.

Leaves lie in `subako/<jailer>/` below the worker's own cgroup (version 1), or below it or beside it
(version 2), so that the host's limits for the worker hold for its jails. A jailer holds a lock on
its folder; folders of jailers that died unlocked theirs and are cleared by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from subako_ray.sandbox.spawn import Spawned

FAMILY: Final = "subako"
TAKING_ATTEMPTS: Final = 5
NSJAIL_PROCESSES: Final = 1
"""nsjail's own process counts in the leaf."""


class CgroupUnavailable(Exception):  # noqa: N818 - read as a state, like `JailUnavailable`
    """No cgroup here can limit memory; says what was tried."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class StrayError(Exception):
    """The jailer is in a jail's cgroup and cannot leave it: it must end, and its jails with it."""


class Leaf(ABC):
    """The cgroup of one jail."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        """Takes folders that exist, the memory controller's first."""
        self.folders = folders

    def processes(self) -> set[int]:
        """Returns the processes in the leaf, without those that ended and wait for their parent."""
        found: set[int] = set()
        for folder in self.folders:
            with contextlib.suppress(FileNotFoundError):
                found.update(map(int, (folder / "cgroup.procs").read_text().split()))
        return found - {0}

    def kill(self) -> None:
        """Kills every process in the leaf; one that is being made may escape one round."""
        for process_id in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)

    def remove(self) -> bool:
        """Removes the leaf; False while a process is in it, dying ones included."""
        for folder in self.folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True

    @abstractmethod
    def limit(self, memory_bytes: int, processes: int) -> None:
        """Sets the limits; there is no swap."""

    @abstractmethod
    def memory_kills(self) -> int:
        """Returns how many processes were killed for the memory limit."""

    @abstractmethod
    def peak_bytes(self) -> int | None:
        """Returns the most memory that was used, where the kernel counts it."""


class LeafV1(Leaf):
    """A leaf in the hierarchies of version 1."""

    def limit(self, memory_bytes: int, processes: int) -> None:
        """See `Leaf.limit`."""
        memory = self.folders[0]
        _write(memory / "memory.limit_in_bytes", str(memory_bytes))
        with_swap = memory / "memory.memsw.limit_in_bytes"
        if with_swap.exists():
            _write(with_swap, str(memory_bytes))
        for folder in self.folders[1:]:
            _write(folder / "pids.max", str(processes + NSJAIL_PROCESSES))

    def memory_kills(self) -> int:
        """See `Leaf.memory_kills`."""
        return _counter(self.folders[0] / "memory.oom_control", "oom_kill")

    def peak_bytes(self) -> int | None:
        """See `Leaf.peak_bytes`."""
        return _number(self.folders[0] / "memory.max_usage_in_bytes")


class LeafV2(Leaf):
    """A leaf in the one hierarchy of version 2."""

    def limit(self, memory_bytes: int, processes: int) -> None:
        """See `Leaf.limit`."""
        (folder,) = self.folders
        _write(folder / "memory.max", str(memory_bytes))
        # `memory.oom.group` stays 0, as version 1 has it: a sandbox outlives a hungry command, and
        # a function call that lost any process is judged by the leaf's count of kills.
        if (folder / "memory.swap.max").exists():
            _write(folder / "memory.swap.max", "0")
        if (folder / "pids.max").exists():
            _write(folder / "pids.max", str(processes + NSJAIL_PROCESSES))

    def kill(self) -> None:
        """Kills every process at once (Linux 5.14), or one by one."""
        try:
            _write(self.folders[0] / "cgroup.kill", "1")
        except OSError:
            super().kill()

    def memory_kills(self) -> int:
        """See `Leaf.memory_kills`."""
        return _counter(self.folders[0] / "memory.events", "oom_kill")

    def peak_bytes(self) -> int | None:
        """See `Leaf.peak_bytes`."""
        return _number(self.folders[0] / "memory.peak")


class Cgroups:
    """The cgroups of one jailer."""

    def __init__(
        self,
        version: int,
        homes: tuple[Path, ...],
        folders: tuple[Path, ...],
        locks: tuple[int, ...],
    ) -> None:
        """Takes what `find` made.

        Args:
            version: of the cgroup interface.
            homes: for version 1, the folders of the cgroups that this process is in.
            folders: this jailer's folders below them.
            locks: descriptors that lock those.
        """
        self.version = version
        self._homes = homes
        self.folders = folders
        self._locks = locks
        self._number = 0

    @classmethod
    def find(cls, own: str, mounts: str) -> Cgroups:
        """Finds a place for leaves, clears what dead jailers left there, and takes a folder in it.

        Args:
            own: the text of `/proc/self/cgroup`.
            mounts: the text of `/proc/self/mountinfo`.

        Raises:
            CgroupUnavailable: no place can be written to or has the memory controller.
        """
        tried: list[str] = []
        for version, places in _places(own, mounts, tried):
            try:
                for place in places:
                    _clear_dead(_make_family(place, version), version)
                return cls(version, places, *_take_folders(places, version))
            except (OSError, CgroupUnavailable) as error:
                reason = error.strerror if isinstance(error, OSError) else error.message
                tried.append(f"cgroup{version} {places[0]}: {reason}")
        raise CgroupUnavailable("; ".join(tried) or "no cgroup file system is mounted")

    def leaf(self, memory_bytes: int, processes: int) -> Leaf:
        """Makes the leaf of a jail.

        Raises:
            OSError: it cannot be made.
        """
        self._number += 1
        folders = tuple(folder / str(self._number) for folder in self.folders)
        leaf = _leaf(self.version, folders)
        try:
            for folder in folders:
                folder.mkdir()
            leaf.limit(memory_bytes, processes)
        except OSError:
            leaf.remove()
            raise
        return leaf

    def spawn(self, leaf: Leaf, start: Callable[[], Spawned]) -> Spawned:
        """Starts a process that is in a leaf from the first, or before it does anything.

        Moving another process waits for the kernel's readers (some 10 ms, whatever the process
        does meanwhile). In version 1 this process's one thread can go into the leaf, start its
        child there, and come back, in a hundredth of that.

        Raises:
            OSError: the process cannot be started or moved; it is not left behind.
            StrayError: this process cannot come back.
        """
        if self.version == 2:
            spawned = start()
            try:
                _write(leaf.folders[0] / "cgroup.procs", str(spawned.process_id))
            except OSError:
                spawned.discard()
                raise
            return spawned
        try:
            for folder in leaf.folders:
                _write(folder / "tasks", "0")
            return start()
        finally:
            try:
                for home in self._homes:
                    _write(home / "tasks", "0")
            except OSError as error:
                raise StrayError from error

    def close(self) -> None:
        """Removes this jailer's folders, as far as they are empty, and unlocks them."""
        for folder in self.folders:
            # The family goes with the last jailer's folder.
            with contextlib.suppress(OSError):
                folder.rmdir()
                folder.parent.rmdir()
        for lock in self._locks:
            os.close(lock)


def _places(own: str, mounts: str, tried: list[str]) -> Iterator[tuple[int, tuple[Path, ...]]]:
    """Yields where leaves could lie, best first, and notes why others cannot."""
    roots = _cgroup_mounts(mounts)
    paths = {
        name: path
        for _, names, path in (line.split(":", 2) for line in own.splitlines())
        for name in names.split(",")
    }
    unified = _own_folder(roots.get(""), paths.get(""))
    if unified is None:
        tried.append("cgroup2: not mounted, or not this process's")
    else:
        for place in (unified, unified.parent):
            controllers = place / "cgroup.controllers"
            if not controllers.exists():
                continue
            if "memory" in controllers.read_text().split():
                yield 2, (place,)
            else:
                tried.append(f"cgroup2 {place}: no `memory` in `cgroup.controllers`")
    memory = _own_folder(roots.get("memory"), paths.get("memory"))
    if memory is None:
        tried.append("cgroup1 memory: not mounted, or not this process's")
        return
    processes = _own_folder(roots.get("pids"), paths.get("pids"))
    yield 1, (memory,) if processes is None else (memory, processes)


def _cgroup_mounts(mounts: str) -> dict[str, tuple[str, str]]:
    """Returns (root, mount point) by controller; version 2 is the controller ``""``."""
    found: dict[str, tuple[str, str]] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, mount_point = before.split(" ")[3:5]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            found[""] = (root, mount_point)
        elif kind == "cgroup":
            for option in options.split(","):
                found[option] = (root, mount_point)
    return found


def _own_folder(mount: tuple[str, str] | None, path: str | None) -> Path | None:
    """Returns the folder of a cgroup, or None where the mount does not show it."""
    if mount is None or path is None:
        return None
    root, mount_point = mount
    inside = PurePosixPath(path)
    # In a cgroup namespace, what lies outside of it shows as `/..`.
    if ".." in inside.parts or not inside.is_relative_to(root):
        return None
    return Path(mount_point) / inside.relative_to(root)


def _make_family(place: Path, version: int) -> Path:
    family = place / FAMILY
    if version == 2:
        _delegate(place)
    family.mkdir(exist_ok=True)
    if version == 2:
        _delegate(family)
    return family


def _delegate(folder: Path) -> None:
    """Lets the folder's children have the controllers that leaves need."""
    control = folder / "cgroup.subtree_control"
    have = control.read_text().split()
    offered = (folder / "cgroup.controllers").read_text().split()
    wanted = [name for name in ("memory", "pids") if name in offered and name not in have]
    if wanted:
        try:
            _write(control, " ".join(f"+{name}" for name in wanted))
        except OSError as error:
            raise CgroupUnavailable(f"cannot enable `memory` below it: {error.strerror}") from None


def _take_folders(
    places: tuple[Path, ...], version: int
) -> tuple[tuple[Path, ...], tuple[int, ...]]:
    for _ in range(TAKING_ATTEMPTS):
        name = secrets.token_hex(8)
        folders = tuple(_make_family(place, version) / name for place in places)
        locks: list[int] = []
        try:
            for folder in folders:
                folder.mkdir()
                locks.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                fcntl.flock(locks[-1], fcntl.LOCK_EX)
                if version == 2:
                    _delegate(folder)
        except FileNotFoundError:
            pass
        # Another jailer may have removed the family with its own folder, or, until it was locked,
        # have taken ours for a dead one's.
        if len(locks) == len(folders) and all(folder.exists() for folder in folders):
            return folders, tuple(locks)
        for lock in locks:
            os.close(lock)
    raise CgroupUnavailable("folders just made were removed by another process")


def _clear_dead(family: Path, version: int) -> None:
    """Kills what is left of jailers that died, and removes their folders."""
    for folder in family.iterdir():
        if not folder.is_dir():
            continue
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            for leaf_folder in [entry for entry in folder.iterdir() if entry.is_dir()]:
                leaf = _leaf(version, (leaf_folder,))
                leaf.kill()
                leaf.remove()
            with contextlib.suppress(OSError):
                folder.rmdir()
        finally:
            os.close(lock)


def _leaf(version: int, folders: tuple[Path, ...]) -> Leaf:
    return LeafV1(folders) if version == 1 else LeafV2(folders)


def _write(path: Path, text: str) -> None:
    # One write, and no truncation: these are the kernel's files.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _counter(path: Path, name: str) -> int:
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except OSError:
        return None
