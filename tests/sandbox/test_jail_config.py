"""nsjail's configuration against golden files; `SUBAKO_ACCEPT=1` rewrites them."""

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from subako_ray.sandbox.config import POLICY, HostFacts, SystemMount, nsjail_config
from subako_ray.sandbox.handover import decode_report, decode_spec, encode_report, encode_spec
from subako_ray.sandbox.spec import (
    BindMount,
    FileMount,
    JailLimits,
    JailReport,
    JailSpec,
    JailUnavailable,
    TemporaryMount,
)
from subako_ray.sandbox.stage import StagedSource

GOLDEN = Path(__file__).parent / "golden"
MEBIBYTE = 1 << 20

ROOT = HostFacts(
    outside_uid=65534,
    outside_gid=65534,
    process_list=True,
    whole_memory=True,
    interpreter="/opt/python/bin/python3.11",
    system=(
        SystemMount(
            target="/usr",
            source=StagedSource(path="/sys/kernel/1", is_folder=True),
            executable=True,
        ),
        SystemMount(
            target="/etc/ld.so.cache",
            source=StagedSource(path="/sys/kernel/2", is_folder=False),
            executable=False,
        ),
        SystemMount(
            target="/opt/python",
            source=StagedSource(path="/sys/kernel/3", is_folder=True),
            executable=True,
        ),
    ),
    links=(("usr/bin", "/bin"), ("usr/lib", "/lib")),
)
ORDINARY_USER = replace(
    ROOT,
    outside_uid=1000,
    outside_gid=1000,
    process_list=False,
    whole_memory=False,
    interpreter="/usr/bin/python3.11",
    system=ROOT.system[:2],
)
PACKAGE = Path("/srv/state/packages/anydoc")
FUNCTION = JailSpec(
    argv=("python3", "-S", "main.py"),
    cwd="/package",
    environment=(("PYTHONPATH", "/opt/subako"), ("HOME", "/package")),
    mounts=(
        FileMount(target="/opt/subako/deep/kit.py", content=b"print()\n"),
        BindMount(source=PACKAGE, target="/package"),
        TemporaryMount(target="/opt/subako", size_bytes=MEBIBYTE, inodes=64),
    ),
    limits=JailLimits(
        wall_seconds=29.5,
        memory_bytes=256 * MEBIBYTE,
        processes=64,
        cpu_seconds=30,
        file_bytes=64 * MEBIBYTE + 1,
        open_files=256,
        temporary_bytes=64 * MEBIBYTE,
        stderr_bytes=4096,
    ),
)
MACHINE = JailSpec(
    argv=("bash", "-c", "true"),
    cwd="/workspace",
    mounts=(TemporaryMount(target="/workspace", size_bytes=256 * MEBIBYTE, inodes=65536),),
    limits=JailLimits(
        wall_seconds=None,
        memory_bytes=512 * MEBIBYTE,
        processes=256,
        cpu_seconds=None,
        file_bytes=256 * MEBIBYTE,
        open_files=1024,
        temporary_bytes=64 * MEBIBYTE,
        stderr_bytes=4096,
    ),
    hostname="machine",
)
SOURCES = {PACKAGE: StagedSource(path="/sys/kernel/4", is_folder=True)}
CASES = {
    "function-as-root": (FUNCTION, ROOT),
    "function-as-ordinary-user": (FUNCTION, ORDINARY_USER),
    "machine-as-root": (MACHINE, ROOT),
    "machine-as-ordinary-user": (MACHINE, ORDINARY_USER),
}


@pytest.mark.parametrize("name", CASES)
def test_the_configuration_is_the_golden_one(name: str) -> None:
    config = nsjail_config(*CASES[name], SOURCES)
    assert config["seccomp_string"] == [POLICY]
    text = json.dumps({**config, "seccomp_string": ["(policy.kafel)"]}, indent=2) + "\n"
    path = GOLDEN / f"{name}.json"
    if os.environ.get("SUBAKO_ACCEPT") == "1":
        path.write_text(text)
    assert text == path.read_text()


def test_no_jail_is_ever_configured_as_the_hosts_root() -> None:
    with pytest.raises(ValueError, match="must not be the host's root"):
        replace(ROOT, outside_uid=0)
    with pytest.raises(ValueError, match="must not be the host's root"):
        replace(ROOT, outside_gid=0)


@pytest.mark.parametrize("spec", [FUNCTION, MACHINE])
def test_a_specification_survives_the_hand_over(spec: JailSpec) -> None:
    assert decode_spec(encode_spec(spec)) == spec


def test_a_report_survives_the_hand_over() -> None:
    report = JailReport(
        verdict="signalled",
        signal="SIGSEGV",
        stderr=b"\xff\0\n",
        stderr_cut=True,
        peak_memory_bytes=1,
        wall_seconds=0.25,
        leaked_processes=2,
        unenforced=("memory_bytes",),
        detail="x",
    )
    assert decode_report(encode_report(report)) == report


def test_the_refusal_of_a_jail_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(JailUnavailable("message", "help")))
    assert (str(error), error.message, error.help_text) == ("message", "message", "help")


@pytest.mark.parametrize(
    "target",
    ["relative", "/", "/usr/x", "/proc", "/etc/passwd", "/opt/python/x", "/a/../b", "/a\n"],
)
def test_a_mount_over_the_base_system_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="mount target"):
        BindMount(source=PACKAGE, target=target)


@pytest.mark.parametrize(
    "changed",
    [
        {"argv": ()},
        {"argv": ("a=b",)},
        {"argv": ("x\n[F][forged",)},
        {"argv": ("x", "a\0b")},
        {"cwd": "relative"},
        {"cwd": "/x\ny"},
        {"environment": (("A=B", "x"),)},
        {"environment": (("A", "x\0"),)},
    ],
)
def test_a_specification_that_could_mislead_nsjail_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        replace(FUNCTION, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["wall_seconds", "memory_bytes", "processes", "stderr_bytes"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_limit_that_limits_nothing_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        replace(FUNCTION.limits, **{name: value})  # type: ignore[arg-type]
