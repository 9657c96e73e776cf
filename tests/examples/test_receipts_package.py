"""The example's function package, called in jails as a session calls it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from isolation import isolation, limits_mode

from subako_ray.cli.main import main
from subako_ray.sandbox.function import Answered, FunctionLimits, FunctionRunner, PackageFolder
from subako_ray.sandbox.lease import Jailer
from subako_ray.schema.package import PACKAGE_FILE, FunctionPackage

FOLDER = Path(__file__).parents[2] / "examples" / "support" / "functions" / "receipts"


@pytest_asyncio.fixture
async def runner() -> AsyncIterator[FunctionRunner]:
    jailer = await Jailer.start(isolation())
    try:
        yield FunctionRunner(jailer)
    finally:
        await jailer.aclose()


async def call(runner: FunctionRunner, tool: str, arguments: dict[str, object]) -> Answered:
    package = FunctionPackage.model_validate_json((FOLDER / PACKAGE_FILE).read_bytes())
    folder = PackageFolder(
        path=FOLDER,
        name=package.name,
        command=tuple(package.command),
        protocol_version=package.protocol_version,
    )
    limits = FunctionLimits(timeout_seconds=10, memory_mib=128, processes=8)
    reply = await runner.call(folder, tool, json.dumps(arguments).encode(), limits)
    assert isinstance(reply, Answered), reply
    return reply


def test_the_package_file_says_what_the_program_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["function", "build", str(FOLDER), "--check", "--limits", limits_mode()]) == 0
    assert "up to date" in capsys.readouterr().out


async def test_amounts_are_exact_to_the_cent(runner: FunctionRunner) -> None:
    lines = ["3 x 0.10 sticker", "1 x 2.25 spoon"]

    total = await call(runner, "total", {"lines": lines})
    refund = await call(runner, "refund", {"lines": lines, "kept_percent": 10})

    assert total.result["structuredContent"] == {"total": "2.55"}
    # 10 % of 2.55 is 0.255: the shop keeps the even cent, and no cent is lost.
    assert refund.result["structuredContent"] == {"paid": "2.55", "kept": "0.26", "refund": "2.29"}


@pytest.mark.parametrize("line", ["kettle", "2 x", "0 x 1.00 cup", "1 x NaN cup", "1 x -1 cup"])
async def test_a_line_that_no_order_has_is_named(runner: FunctionRunner, line: str) -> None:
    answered = await call(runner, "total", {"lines": [line]})

    assert answered.result["isError"] is True
    assert f"`{line}`" in json.dumps(answered.result["content"])
