"""Function packages in real jails: calls, and programs that misbehave."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from isolation import isolation, require_memory_cgroup

from subako_ray.sandbox.function import (
    Answered,
    Broken,
    FunctionLimits,
    FunctionRunner,
    Listed,
    PackageFolder,
    Refused,
)
from subako_ray.sandbox.lease import Jailer

WORKSHOP = PackageFolder(
    path=Path(__file__).parent / "packages" / "workshop",
    name="workshop",
    command=("python3", "main.py"),
    protocol_version="2026-07-28",
)
LIMITS = FunctionLimits(timeout_seconds=20, memory_mib=256)
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


@pytest.fixture
async def runner() -> AsyncIterator[FunctionRunner]:
    jailer = await Jailer.start(isolation())
    yield FunctionRunner(jailer)
    await jailer.aclose()


@pytest.fixture
def package(tmp_path: Path) -> PackageFolder:
    """A package whose program the test writes."""
    tmp_path.chmod(0o755)  # as an unpacked bundle is
    return PackageFolder(
        path=tmp_path,
        name="broken",
        command=("python3", "main.py"),
        protocol_version="2026-07-28",
    )


def program(package: PackageFolder, source: str) -> PackageFolder:
    (package.path / "main.py").write_text(source)
    return package


async def answered(runner: FunctionRunner, tool: str, **arguments: object) -> dict[str, object]:
    reply = await runner.call(WORKSHOP, tool, json.dumps(arguments).encode(), LIMITS)
    assert isinstance(reply, Answered), reply
    return reply.result


async def broken(
    runner: FunctionRunner, package: PackageFolder, limits: FunctionLimits = LIMITS
) -> Broken:
    reply = await asyncio.wait_for(runner.call(package, "tool", b"{}", limits), 60)
    assert isinstance(reply, Broken), reply
    assert reply.detail.startswith("function package `broken` ")
    assert "\n" not in reply.detail
    assert reply.report.leaked_processes == 0
    return reply


@pytest.mark.parametrize("version", [*VERSIONS, None])
async def test_a_call_is_answered_in_every_version(
    runner: FunctionRunner, version: str | None
) -> None:
    package = replace(WORKSHOP, protocol_version=version)
    reply = await runner.call(package, "add", b'{"a":2,"b":3}', LIMITS)
    assert isinstance(reply, Answered)
    assert reply.result["structuredContent"] == {"sum": 5}
    assert reply.result["isError"] is False
    assert b"stray: written while the package loads" in reply.report.stderr
    assert b"stray: written by a child" in reply.report.stderr
    assert b"stray: written while the tool runs" in reply.report.stderr


@pytest.mark.parametrize("version", [*VERSIONS, None])
async def test_tools_are_listed_in_every_version(
    runner: FunctionRunner, version: str | None
) -> None:
    listing = await runner.list_tools(replace(WORKSHOP, protocol_version=version), LIMITS)
    assert isinstance(listing, Listed)
    assert listing.protocol_version == (version or "2026-07-28")
    assert [tool["name"] for tool in listing.tools][:3] == ["add", "mirror", "later"]
    assert listing.tools[0]["inputSchema"] == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first."},
            "b": {"type": "integer", "description": "the second.", "default": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


async def test_numbers_and_text_survive_exactly(runner: FunctionRunner) -> None:
    arguments = '{"value":[123456789012345678901234567890,-0.1,1e300,"é\\u0000\U0001f600",{}]}'
    reply = await runner.call(WORKSHOP, "echo", arguments.encode(), LIMITS)
    assert isinstance(reply, Answered)
    assert reply.result["structuredContent"] == json.loads(arguments)


async def test_dataclasses_and_async_functions_work(runner: FunctionRunner) -> None:
    mirrored = await answered(runner, "mirror", point={"x": 1, "y": 2.5})
    assert mirrored["structuredContent"] == {"x": -1.0, "y": -2.5}
    assert (await answered(runner, "later", text="hi"))["content"] == [
        {"type": "text", "text": "hi"}
    ]
    assert (await answered(runner, "count", to=3))["isError"] is False


async def test_a_tool_error_and_an_exception_are_results(runner: FunctionRunner) -> None:
    refused = await answered(runner, "refuse", reason="not today")
    assert (refused["isError"], refused["content"]) == (
        True,
        [{"type": "text", "text": "not today"}],
    )
    crashed = await answered(runner, "crash")
    assert (crashed["isError"], crashed["content"]) == (
        True,
        [{"type": "text", "text": "ValueError: broken inside"}],
    )


async def test_an_unknown_tool_is_refused(runner: FunctionRunner) -> None:
    reply = await runner.call(WORKSHOP, "nope", b"{}", LIMITS)
    assert isinstance(reply, Refused)
    assert (reply.code, reply.message) == (-32602, "Unknown tool: nope")


async def test_two_calls_see_nothing_of_each_other_or_of_the_host(
    runner: FunctionRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case B5."""
    monkeypatch.setenv("CANARY", "canary-of-the-worker")
    for _ in range(2):
        reply = await runner.call(WORKSHOP, "trace", b"{}", LIMITS)
        assert isinstance(reply, Answered)
        found = reply.result["structuredContent"]
        assert isinstance(found, dict)
        assert found["seen"] == []
        assert found["refused"] == ["/package/trace", "/opt/subako/trace", "/trace"]
        assert found["folder"] == "/package"
        assert found["input"] == ""
        assert "CANARY" not in found["environment"]
        assert not [path for path in found["paths"] if "site-packages" in path]
    assert not (WORKSHOP.path / "trace").exists()


async def test_calls_at_the_same_time_get_their_own_answers(runner: FunctionRunner) -> None:
    results = await asyncio.gather(*(answered(runner, "add", a=n) for n in range(6)))
    assert [result["structuredContent"] for result in results] == [{"sum": n + 1} for n in range(6)]


ANSWER = "import sys, json; sys.stdin.readline(); print({!r}, flush=True)\nsys.stdin.read()\n"


@pytest.mark.parametrize(
    ("source", "reason", "said"),
    [
        ("print('Starting server...', flush=True)\nwhile True: pass", "bad_output", "not JSON"),
        (ANSWER.format("{}"), "bad_output", "not a JSON-RPC message"),
        (ANSWER.format("[]"), "bad_output", "not a JSON-RPC message"),
        (ANSWER.format('{"jsonrpc":"2.0","id":7,"result":{}}'), "bad_output", "not made"),
        (ANSWER.format('{"jsonrpc":"2.0","id":1,"result":[]}'), "bad_output", "neither"),
        (
            ANSWER.format('{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}'),
            "bad_output",
            "a key stands twice",
        ),
        (ANSWER.format('{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}'), "bad_output", "`NaN`"),
        (ANSWER.format('{\n  "jsonrpc": "2.0"\n}'), "bad_output", "not JSON"),
        (ANSWER.format('{"jsonrpc":"2.0","id":1,"result":"' + "[" * 9), "bad_output", "not JSON"),
        ("import os; os.write(1, b'\\xff\\n'); input()", "bad_output", "not UTF-8"),
        (
            ANSWER.format('{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required"}}'),
            "bad_output",
            "not complete",
        ),
        (
            "import sys; sys.exit('no luck\\x1b[31m')",
            "exited",
            "code 1 before it answered: no luck",
        ),
        ("raise SystemExit(0)", "exited", "code 0 before it answered"),
        ("import ctypes; ctypes.string_at(0)", "exited", "SIGSEGV"),
        ("syntax error here", "exited", "SyntaxError"),
    ],
)
async def test_a_misbehaving_program_is_named(
    runner: FunctionRunner, package: PackageFolder, source: str, reason: str, said: str
) -> None:
    reply = await broken(runner, program(package, source))
    assert reply.reason == reason
    assert said in reply.detail
    assert "\x1b" not in reply.detail
    assert reply.may_have_run is True


@pytest.mark.parametrize(
    "source",
    [
        "import signal, time\nsignal.pthread_sigmask(0, range(1, 64))\ntime.sleep(60)",
        "import os, time\nos.close(1)\ntime.sleep(60)",
    ],
)
async def test_a_program_that_never_answers_meets_the_time_limit(
    runner: FunctionRunner, package: PackageFolder, source: str
) -> None:
    began = time.monotonic()
    reply = await broken(runner, program(package, source), replace(LIMITS, timeout_seconds=1))
    assert reply.reason == "timed_out"
    assert "did not answer within 1 seconds" in reply.detail
    assert time.monotonic() - began < 15


async def test_a_memory_bomb_meets_the_memory_limit(
    runner: FunctionRunner, package: PackageFolder
) -> None:
    require_memory_cgroup()
    reply = await broken(
        runner, program(package, "b = bytearray(600 << 20)"), replace(LIMITS, memory_mib=128)
    )
    assert reply.reason == "out_of_memory"
    assert "128 MiB" in reply.detail


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os\nos.execvp('yes', ['yes'])", "bad_output"),
        ("import os\nos.execvp('head', ['head', '-c', '2G', '/dev/zero'])", "output_limit"),
        (
            'while True: print(\'{"jsonrpc":"2.0","method":"notifications/x"}\' * 1)',
            "output_limit",
        ),
    ],
)
async def test_a_flood_on_standard_output_is_cut_off_and_neighbours_work_on(
    runner: FunctionRunner, package: PackageFolder, source: str, reason: str
) -> None:
    """Case B2."""
    reply, neighbour = await asyncio.gather(
        broken(runner, program(package, source)), answered(runner, "add", a=1)
    )
    assert reply.reason == reason
    assert neighbour["structuredContent"] == {"sum": 2}


async def test_a_flood_on_standard_error_does_not_hinder_the_answer(
    runner: FunctionRunner, package: PackageFolder
) -> None:
    """Case B2."""
    source = (
        "import os\n"
        "from subako_function import serve, tool\n"
        "os.system('head -c 200M /dev/zero >&2')\n"
        "tool(name='tool')(lambda: 'done')\n"
        "serve()\n"
    )
    reply = await runner.call(program(package, source), "tool", b"{}", LIMITS)
    assert isinstance(reply, Answered)
    assert reply.result["content"] == [{"type": "text", "text": "done"}]
    assert reply.report.stderr_cut is True
    assert len(reply.report.stderr) <= 64 * 1024


@pytest.mark.parametrize("command", ["./no-such-program", "/package/main.txt"])
async def test_a_program_that_cannot_be_started_has_not_run(
    runner: FunctionRunner, package: PackageFolder, command: str
) -> None:
    (package.path / "main.txt").write_text("not a program")
    reply = await broken(runner, replace(package, command=(command,)))
    assert reply.reason == "jail_failed"
    assert reply.may_have_run is False


async def test_a_program_that_is_not_on_the_path_is_named(
    runner: FunctionRunner, package: PackageFolder
) -> None:
    reply = await broken(runner, replace(package, command=("no-such-program",)))
    assert reply.reason == "exited"
    assert "code 127" in reply.detail
    assert "no-such-program" in reply.detail


async def test_a_program_that_breaks_in_the_handshake_has_not_run_the_tool(
    runner: FunctionRunner, package: PackageFolder
) -> None:
    older = replace(package, protocol_version="2025-11-25")
    reply = await broken(runner, program(older, "print('hello')"))
    assert (reply.reason, reply.may_have_run) == ("bad_output", False)


async def test_a_program_that_dies_of_the_probe_is_started_again_without_it(
    runner: FunctionRunner, package: PackageFolder
) -> None:
    source = (
        "import sys, json\n"
        "for line in sys.stdin:\n"
        "    message = json.loads(line)\n"
        "    if message['method'] == 'server/discover': sys.exit(1)\n"
        "    results = {'tools/list': {'tools': []}}\n"
        "    results['initialize'] = {'protocolVersion': '2024-11-05'}\n"
        "    if 'id' in message:\n"
        "        answer = {'jsonrpc': '2.0', 'id': message['id']}\n"
        "        print(json.dumps({**answer, 'result': results[message['method']]}), flush=True)\n"
    )
    listing = await runner.list_tools(
        replace(program(package, source), protocol_version=None), LIMITS
    )
    assert isinstance(listing, Listed)
    assert (listing.protocol_version, listing.tools) == ("2024-11-05", [])


async def test_a_cancelled_call_ends_its_jail(
    runner: FunctionRunner, package: PackageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = []
    acquire = runner._jailer.acquire

    async def watched(spec):  # type: ignore[no-untyped-def]
        leases.append(await acquire(spec))
        return leases[-1]

    monkeypatch.setattr(runner._jailer, "acquire", watched)
    source = (
        "import sys\n"
        'print(\'{"jsonrpc":"2.0","id":"here","method":"ping"}\', flush=True)\n'
        "for line in sys.stdin: pass\n"
    )
    task = asyncio.create_task(runner.call(program(package, source), "tool", b"{}", LIMITS))
    while not leases:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    report = await asyncio.wait_for(leases[0].ended(), 10)
    assert (report.verdict, report.leaked_processes) == ("killed", 0)


async def test_arguments_with_a_newline_are_refused(runner: FunctionRunner) -> None:
    with pytest.raises(ValueError, match="newline"):
        await runner.call(WORKSHOP, "add", b'{"a":\n1}', LIMITS)
