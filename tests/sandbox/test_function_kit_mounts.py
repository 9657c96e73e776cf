"""How the guest kit gets into jails, whatever the folder it is installed in allows."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from isolation import isolation

from subako_ray.sandbox import guest_kit
from subako_ray.sandbox.function import Answered, FunctionLimits, FunctionRunner, PackageFolder
from subako_ray.sandbox.guest_kit import GuestKit
from subako_ray.sandbox.lease import Jailer
from subako_ray.sandbox.spec import BindMount, FileMount

WORKSHOP = PackageFolder(
    path=Path(__file__).parent / "packages" / "workshop",
    name="workshop",
    command=("python3", "main.py"),
    protocol_version="2026-07-28",
)
FROM_WHERE = """
import subako_function
from subako_function import serve, tool

@tool
def origin() -> dict[str, str]:
    return {"source": subako_function.__file__, "compiled": subako_function.__cached__}

serve()
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the kit that the test may change."""
    folder = tmp_path / "guest"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    source = folder / "subako_function.py"
    shutil.copyfile(guest_kit.KIT_SOURCE, source)
    source.chmod(0o644)
    monkeypatch.setattr(guest_kit, "KIT_SOURCE", source)
    return source


@pytest.fixture
async def jailer() -> AsyncIterator[Jailer]:
    jailer = await Jailer.start(isolation())
    yield jailer
    await jailer.aclose()


async def works(jailer: Jailer, kit: GuestKit) -> bool:
    runner = FunctionRunner(jailer, kit)
    reply = await runner.call(WORKSHOP, "add", b'{"a":1}', FunctionLimits())
    return isinstance(reply, Answered) and reply.result["structuredContent"] == {"sum": 2}


async def test_the_installed_folder_is_mounted_with_fresh_byte_code(
    jailer: Jailer, installed: Path
) -> None:
    kit = GuestKit.load()
    assert kit.mounts == (BindMount(source=installed.parent, target="/opt/subako"),)
    (compiled,) = (installed.parent / "__pycache__").iterdir()
    first = compiled.read_bytes()
    assert await works(jailer, kit)

    before = compiled.stat().st_ino
    GuestKit.load()
    assert compiled.stat().st_ino == before

    with installed.open("a") as file:
        file.write("\nEXTRA = 1\n")
    GuestKit.load()
    assert compiled.read_bytes() != first


@pytest.mark.parametrize("obstacle", ["no byte code can be written", "jails may not read it"])
async def test_the_kit_travels_with_the_jail_where_its_folder_cannot_be_used(
    jailer: Jailer, installed: Path, obstacle: str
) -> None:
    if obstacle == "jails may not read it":
        installed.chmod(0o600)
    else:
        # A file in the folder's place stops even root.
        (installed.parent / "__pycache__").write_text("")
    kit = GuestKit.load()
    assert [type(mount) for mount in kit.mounts] == [FileMount, FileMount]
    assert await works(jailer, kit)


@pytest.mark.parametrize("carried", [False, True])
async def test_the_byte_code_is_where_the_interpreter_looks_for_it(
    jailer: Jailer, tmp_path: Path, carried: bool, installed: Path
) -> None:
    if carried:
        installed.chmod(0o600)
    kit = GuestKit.load()
    folder = tmp_path / "package"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    (folder / "main.py").write_text(FROM_WHERE)
    package = PackageFolder(
        path=folder,
        name="p",
        command=("python3", "main.py"),
        protocol_version="2026-07-28",
    )
    reply = await FunctionRunner(jailer, kit).call(package, "origin", b"{}", FunctionLimits())
    assert isinstance(reply, Answered)
    found = reply.result["structuredContent"]
    assert isinstance(found, dict)
    assert found["source"] == "/opt/subako/subako_function.py"
    name = os.fspath(found["compiled"])
    if carried:
        assert name in [mount.target for mount in kit.mounts]
    else:
        assert (installed.parent / Path(name).relative_to("/opt/subako")).is_file()
