"""Finding a place for cgroups, and what is written into version 2's files."""

from pathlib import Path

import pytest

from subako_ray.sandbox.cgroup import Cgroups, CgroupUnavailable, LeafV1, LeafV2


def mount(kind: str, point: Path, options: str = "rw", root: str = "/") -> str:
    return f"31 23 0:28 {root} {point} rw,relatime shared:9 - {kind} none {options}\n"


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    """A cgroup of version 2 as plain files: the kernel's files of a new folder do not appear."""
    own = tmp_path / "slice" / "scope"
    own.mkdir(parents=True)
    for folder in (own, own.parent):
        (folder / "cgroup.controllers").write_text("cpu memory pids\n")
        (folder / "cgroup.subtree_control").write_text("\n")
    return own


def why_not(own: str, mounts: str) -> str:
    with pytest.raises(CgroupUnavailable) as caught:
        Cgroups.find(own, mounts)
    return caught.value.message


def test_a_host_without_cgroups_says_what_was_looked_for() -> None:
    message = why_not("0::/\n", mount("tmpfs", Path("/tmp")))
    assert message == (
        "cgroup2: not mounted, or not this process's; "
        "cgroup1 memory: not mounted, or not this process's"
    )


def test_a_version_2_without_the_memory_controller_is_named(unified: Path) -> None:
    for folder in (unified, unified.parent):
        (folder / "cgroup.controllers").write_text("hugetlb\n")
    message = why_not("0::/slice/scope\n", mount("cgroup2", unified.parents[1]))
    assert f"cgroup2 {unified}: no `memory` in `cgroup.controllers`" in message


def test_controllers_are_enabled_for_children_and_each_attempt_is_told(unified: Path) -> None:
    message = why_not("0::/slice/scope\n", mount("cgroup2", unified.parents[1]))
    # Here the attempts end at the new folder, which has no controllers in plain files.
    assert f"cgroup2 {unified}: No such file or directory" in message
    assert f"cgroup2 {unified.parent}: No such file or directory" in message
    assert (unified / "cgroup.subtree_control").read_text() == "+memory +pids"


@pytest.mark.parametrize(("root", "path"), [("/docker/a", "/docker/b"), ("/", "/../outside")])
def test_a_cgroup_that_the_mount_does_not_show_is_not_guessed(
    unified: Path, root: str, path: str
) -> None:
    message = why_not(f"0::{path}\n", mount("cgroup2", unified, root=root))
    assert "cgroup2: not mounted, or not this process's" in message


def test_a_version_2_leaf_limits_memory_without_swap_and_processes(tmp_path: Path) -> None:
    names = ("memory.max", "memory.swap.max", "pids.max", "cgroup.kill")
    for name in names:
        (tmp_path / name).write_text("")
    leaf = LeafV2((tmp_path,))
    leaf.limit(1 << 26, 10)
    leaf.kill()
    # One process more: nsjail's own.
    assert [(tmp_path / name).read_text() for name in names] == ["67108864", "0", "11", "1"]


def test_kills_for_memory_are_counted_in_either_version(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("low 0\noom 7\noom_kill 3\noom_group_kill 1\n")
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    (tmp_path / "memory.peak").write_text("123\n")
    assert LeafV2((tmp_path,)).memory_kills() == 3
    assert LeafV2((tmp_path,)).peak_bytes() == 123
    assert LeafV1((tmp_path,)).memory_kills() == 2
    assert LeafV1((tmp_path,)).peak_bytes() is None
