"""Jails of a service that is not root, also where a container masks `/proc`."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import subako_ray
from subako_ray.sandbox.binary import locate_nsjail
from subako_ray.sandbox.spec import IsolationSettings

SYSTEM_PYTHON = Path("/usr/bin/python3")
USER = "1000"
MASK = "mount -t tmpfs none /proc/sys && "
"""Something over a part of `/proc`, as container runtimes do."""


@pytest.fixture(scope="module", params=["whole", "masked"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `user_probe` saw as an ordinary user, and whether `/proc` was masked."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if not (shutil.which("setpriv") and shutil.which("unshare") and SYSTEM_PYTHON.exists()):
        pytest.skip("needs `setpriv`, `unshare` and a Python in /usr")
    nsjail = locate_nsjail(IsolationSettings())
    root = Path(subako_ray.__file__).parent.parent
    become = ("setpriv", "--reuid", USER, "--regid", USER, "--clear-groups")
    readable = subprocess.run([*become, "test", "-r", __file__, "-a", "-x", nsjail], check=False)
    if readable.returncode != 0:
        pytest.skip("this checkout or its nsjail is closed to other users")
    folder = Path("/tmp") / tmp_path_factory.mktemp("user").name
    folder.mkdir()
    os.chown(folder, int(USER), int(USER))
    mask = MASK if request.param == "masked" else ""
    try:
        result = subprocess.run(
            [
                *("unshare", "--mount", "sh", "-c", mask + 'exec "$@"', "sh"),
                *(*become, SYSTEM_PYTHON, Path(__file__).with_name("user_probe.py")),
                *(nsjail, folder),
            ],
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": f"{root}:{Path(__file__).parents[1] / 'support'}",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        shutil.rmtree(folder)
    assert result.returncode == 0, result.stderr
    return request.param, json.loads(result.stdout)


def test_a_jail_is_the_user_itself_without_any_capability(seen: Any) -> None:
    status = seen[1]["status"]
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {USER}
    assert all(int(status[name], 16) == 0 for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb"))
    assert (status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("1", "2")


def test_without_a_cgroup_the_user_is_refused_unless_it_settles_for_less(seen: Any) -> None:
    if "refused" not in seen[1]:
        pytest.skip("this user has a delegated memory cgroup")
    message, help_text = seen[1]["refused"]
    assert message.startswith("no cgroup can limit a jail's memory (cgroup2")
    assert "Delegate=yes" in help_text
    assert seen[1]["release"] == ["killed", 0, ["memory_bytes"]]
    assert seen[1]["memory"] == [1, "MemoryError"]


def test_a_released_jail_leaves_nothing(seen: Any) -> None:
    assert seen[1]["after release"] == []


def test_a_folder_closed_to_all_but_the_user_can_be_shown(seen: Any) -> None:
    masked = seen[0] == "masked"
    assert seen[1]["own folder"] == f"content {not masked}\n"


def test_jails_die_with_the_jailer(seen: Any) -> None:
    assert seen[1]["jailer killed"] == "supervisor_lost"
