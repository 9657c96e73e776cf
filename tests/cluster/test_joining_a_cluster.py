"""Joining a Ray cluster that runs already, with its token, and clear errors when that fails."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from isolation import limits_mode
from processes import kill_with_descendants
from session_bench import builtin_grant, make_plan

RAY = Path(sys.executable).with_name("ray")


@dataclass(frozen=True, slots=True)
class Running:
    """A cluster: where it is, and a home folder with its token."""

    address: str
    home: Path
    plan: Path

    def run(
        self, address: str, state: str = "state", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs one call of a session on a cluster."""
        return subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "subako_ray.cli.main",
                    "run",
                    str(self.plan),
                    "--limits",
                    limits_mode(),
                ),
                *("--address", address, "--state", str(self.home / state)),
                *("--call", "builtin__session__name", '{"name":"joined"}'),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "HOME": str(self.home), **environment},
            check=False,
        )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Starts a head node with a token of its own, and ends it."""
    home = tmp_path_factory.mktemp("home")
    (home / ".ray").mkdir(mode=0o700)
    (home / ".ray" / "auth_token").write_text(secrets.token_hex(32))
    plan = home / "plan.json"
    plan.write_bytes(make_plan(builtin_grant("session")).to_bytes())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # The path of a socket in it may have 107 bytes, so the folder's name is short.
    folder = Path("/tmp") / f"ray-{os.getpid()}"
    head = subprocess.Popen(
        [
            *(str(RAY), "start", "--head", "--block", f"--port={port}", "--num-cpus=1"),
            *("--include-dashboard=false", f"--temp-dir={folder}", "--disable-usage-stats"),
            "--object-store-memory=100000000",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HOME": str(home)},
    )
    assert head.stdout is not None
    said = []
    for line in head.stdout:
        said.append(line)
        if "Ray runtime started" in line:
            break
    else:
        pytest.fail("".join(said))
    try:
        yield Running(f"127.0.0.1:{port}", home, plan)
    finally:
        # Asked nicely, a head node waits half a minute for work to end.
        kill_with_descendants(head.pid)
        head.communicate(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


def test_sessions_run_on_a_cluster_that_was_there_and_it_lives_on(running: Running) -> None:
    for _ in range(2):
        done = running.run(running.address)
        assert done.returncode == 0, done.stderr
        assert "the session is now named `joined`" in done.stdout
    assert done.stderr.startswith("joining Ray at")


def test_a_cluster_that_is_not_there_is_said_at_once(running: Running) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = running.run(f"127.0.0.1:{port}")
    assert done.returncode == 3
    assert f"nothing answers at `127.0.0.1:{port}`" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_token_does_not_join(running: Running) -> None:
    done = running.run(running.address, RAY_AUTH_TOKEN="0" * 64)
    assert done.returncode == 3
    assert f"Ray could not be joined at `{running.address}`" in done.stderr
    assert "Traceback" not in done.stderr
