"""Golden cases: folders with a manifest, and what compiling it gives.

`make accept` (SUBAKO_ACCEPT=1) rewrites what is expected; otherwise it is only compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

import pytest

from subako_ray.compiler import CompiledVersion, Report, compile_version
from subako_ray.compiler.render import render
from subako_ray.compiler.rules import RULES
from subako_ray.schema.bundle import read
from subako_ray.schema.plan import load_plan

CHECKOUT = Path(__file__).parents[2]
CASES = CHECKOUT / "tests" / "cases"
ERRORS = CHECKOUT / "docs" / "errors.md"
ACCEPT = os.environ.get("SUBAKO_ACCEPT") == "1"

GOOD = sorted(path for path in (CASES / "ok").iterdir() if path.is_dir())
BAD = sorted(path for path in (CASES / "err").iterdir() if path.is_dir())


def compiled(folder: Path) -> CompiledVersion | Report:
    # Named as its author would, so that the case does not depend on where the checkout is.
    with contextlib.chdir(folder):
        return compile_version(next(Path().glob("version.*")))


def check(path: Path, text: str) -> None:
    if ACCEPT:
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("folder", GOOD, ids=lambda path: path.name)
def test_a_good_version_compiles_to_its_plan(folder: Path) -> None:
    outcome = compiled(folder)

    assert isinstance(outcome, CompiledVersion), render(outcome, "full")
    data = outcome.plan.to_bytes()
    check(folder / "plan.json", json.dumps(json.loads(data), indent=2, ensure_ascii=False) + "\n")
    assert load_plan(data) == outcome.plan
    assert outcome.plan.bundles() == set(outcome.bundles)
    for bundle in outcome.bundles.values():
        read(bundle)


@pytest.mark.parametrize("folder", BAD, ids=lambda path: path.name)
def test_a_bad_version_gives_its_diagnostics(folder: Path) -> None:
    outcome = compiled(folder)

    assert isinstance(outcome, Report)
    check(folder / "expected.txt", render(outcome, "full"))
    check(folder / "expected.json", render(outcome, "json"))


def test_every_rule_has_a_section_and_a_failing_case() -> None:
    sections = set(
        re.findall(r"^## `([a-z-]+)`$", ERRORS.read_text(encoding="utf-8"), re.MULTILINE)
    )
    shown = {
        one["rule"]
        for folder in BAD
        for one in json.loads((folder / "expected.json").read_text(encoding="utf-8"))["diagnostics"]
    }

    assert sections == set(RULES)
    # A file of 4 MiB is no plain case; tests/compiler/test_hostile_texts.py makes one.
    assert shown | {"too-large"} == set(RULES)


def test_a_case_names_the_rule_it_is_about() -> None:
    for folder in BAD:
        report = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        rules = {one["rule"] for one in report["diagnostics"]}
        about = [rule for rule in RULES if folder.name.startswith(rule)]
        if about and not folder.name.startswith("invalid-skill-"):
            assert set(about) & rules, folder.name


def test_no_expected_output_holds_a_credential() -> None:
    for folder in BAD:
        for expected in folder.glob("expected.*"):
            assert "tops3cret" not in expected.read_text(encoding="utf-8"), expected
