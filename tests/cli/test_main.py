"""The command line as a whole: help, exit codes, and what a base install says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from subako_ray.cli.main import COMMANDS, main


def subako(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "subako_ray.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_every_command_has_help_with_examples(command: str) -> None:
    done = subako(command, "--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout
    assert f"subako {command}" in done.stdout


def test_the_overview_lists_every_command_and_the_exit_codes() -> None:
    done = subako("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert f"  {command.name}" in done.stdout
    assert "exit codes:" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("--nonsense",), ("compile",)])
def test_wrong_usage_is_exit_code_2_without_a_traceback(arguments: tuple[str, ...]) -> None:
    done = subako(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_base_install_says_what_a_command_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    # What Python does for a package that is not installed.
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in [name for name in sys.modules if name.startswith("subako_ray.executor.cluster")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "subako_ray.cli.run", raising=False)
    assert main(["run", "x.yaml", "--call", "a", "{}"]) == 3


def test_a_reader_that_has_gone_is_no_error() -> None:
    shell = f"{sys.executable} -m subako_ray.cli.main compile --help | true"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr
