"""What must hold of the checkout itself."""

from __future__ import annotations

import itertools
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from scripts import generate

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.txt").read_text()


def requirement_names(lines: list[str]) -> set[str]:
    found = (re.match(r"[A-Za-z0-9._-]+", line) for line in lines)
    return {match.group().lower().replace(".", "-").replace("_", "-") for match in found if match}


def test_the_lock_pins_everything_that_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = itertools.chain.from_iterable(project["optional-dependencies"].values())
    wanted = [*project["dependencies"], *extras]

    locked = [line for line in LOCK.splitlines() if line[:1].isalpha()]

    assert requirement_names(wanted) <= requirement_names(locked)
    assert all("==" in line for line in locked)


def test_every_locked_package_has_hashes() -> None:
    for block in re.split(r"\n(?=[a-zA-Z])", LOCK):
        if block[:1].isalpha():
            assert "--hash=sha256:" in block, block.splitlines()[0]


def test_the_lock_names_no_host_and_no_path() -> None:
    rows = [line for line in LOCK.splitlines() if not line.startswith("#")]

    assert not [line for line in rows if re.search(r"://|index|find-links|file:|@ |^-|/", line)]


@pytest.mark.parametrize("stale", ["", "an older text\n"])
def test_a_stale_generated_file_fails_the_check_and_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stale: str
) -> None:
    made = tmp_path / "made.txt"
    made.write_text(stale)
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "GENERATED", {"made.txt": lambda: "what the code makes\n"})

    assert generate.main(["--check"]) == 1
    assert made.read_text() == stale

    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    assert made.read_text() == "what the code makes\n"


def test_every_command_of_the_readme_is_a_target_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z]+)", (ROOT / "README.md").read_text(), re.MULTILINE))

    assert {"demo", "test"} <= named <= targets
    assert {"setup", "demo", "test", "check", "accept", "bench"} <= targets


def test_help_lists_every_target_with_a_text() -> None:
    done = subprocess.run(
        ["make", "-C", ROOT, "--no-print-directory"], capture_output=True, text=True, check=True
    )

    listed = re.findall(r"^  make ([a-z]+) +\S", done.stdout, re.MULTILINE)
    assert {"setup", "demo", "test", "check", "accept", "bench", "lock", "clean"} <= set(listed)


def test_ci_runs_the_tests_and_the_checks() -> None:
    commands = (ROOT / ".ci" / "run").read_text().splitlines()

    assert commands[0] == "#!/usr/bin/env bash"
    assert [line for line in commands if line.startswith("make ")] == ["make test", "make check"]
    assert "set -euo pipefail" in commands
