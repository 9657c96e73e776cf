"""The state folder: found by argument or XDG, made private, refused when others can write it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from subako_ray.cli.main import CommandError, ExitCode
from subako_ray.cli.state import state_folder


def test_the_argument_wins_over_xdg_and_xdg_over_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert state_folder(str(tmp_path / "mine")) == tmp_path / "mine"
    assert state_folder(None) == tmp_path / "xdg" / "subako"
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_STATE_HOME", ignored)
        assert state_folder(None) == tmp_path / "home/.local/state/subako"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_folder(None) == tmp_path / "home/.local/state/subako"


def test_a_relative_argument_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert state_folder("mine") == tmp_path / "mine"


def test_a_new_folder_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = state_folder(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("bits", [0o770, 0o720, 0o702, 0o1777])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, bits: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(bits)
    with pytest.raises(CommandError, match="can be written by other users") as raised:
        state_folder(str(folder))
    assert raised.value.code == ExitCode.HOST


def test_a_folder_that_others_can_only_read_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "readable"
    folder.mkdir()
    folder.chmod(0o755)
    assert state_folder(str(folder)) == folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12_345, -1)
    with pytest.raises(CommandError, match="belongs to another user"):
        state_folder(str(folder))


def test_what_is_no_folder_or_cannot_be_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(CommandError, match="is not a folder"):
        state_folder(str(file))
    with pytest.raises(CommandError, match="cannot be made"):
        state_folder(str(file / "below"))
    for name in ("", "a\0b"):
        with pytest.raises(CommandError) as raised:
            state_folder(name)
        assert raised.value.code == ExitCode.USAGE
