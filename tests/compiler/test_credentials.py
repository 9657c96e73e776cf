"""A version never holds a credential, and no output ever shows one."""

from __future__ import annotations

import json

import pytest
from manifest_bench import MODEL, View

from subako_ray.compiler import CompiledVersion, Report, compile_manifest
from subako_ray.compiler.diagnostic import FORMATS
from subako_ray.compiler.render import render

BODY = "tops3cretTOPS3CRETtops3cretTOPS3CRET"
CREDENTIALS = {
    "anthropic": f"sk-ant-api03-{BODY}",
    "openai": f"sk-proj-{BODY}",
    "github": f"ghp_{BODY}",
    "github-fine": f"github_pat_{BODY}",
    "gitlab": f"glpat-{BODY}",
    "slack": f"xoxb-123-{BODY}",
    "aws": "AKIATOPS3CRETTOPS3CR",
    "google": f"AIza{BODY}",
    "stripe": f"sk_live_{BODY}",
    "subako-key": f"sbk_ak_{BODY}",
    "subako-session": f"sbk_st_{BODY}",
    "jwt": f"eyJhbGciOiJI.eyJ{BODY}.{BODY}",
    "pem": f"-----BEGIN PRIVATE KEY-----{BODY}",
    "bearer": f"Bearer {BODY}",
    "userinfo": f"https://user:{BODY}@h.example/mcp",
}
PLACES = {
    "value": "agent: '{}'\n",
    "key": "system_prompt: {{template: p, variables: {{'{}': 1}}}}\n",
    "escaped": 'agent: "\\x20{}"\n',
    "prompt": "system_prompt: |\n  Line one.\n  The key is {}\n",
    "comment": "agent: a # {}\n",
    "not-yaml": "agent: a: b {}\n",
    "wrong-value": "builtins: ['{}']\n",
    "wrong-kind": "mcp: '{}'\n",
    "url": "mcp: [{{name: a, url: 'https://h/?x={}', default_policy: deny}}]\n",
    "cut-name": f"mcp: [{{{{name: '{'x' * 60} {{}}', no: 1}}}}]\n",
    "twice": "agent: ['{0}', '{0}']\n",
}


def report_of(manifest: str) -> Report:
    outcome = compile_manifest("version.yaml", View(manifest.encode()))
    assert isinstance(outcome, Report)
    return outcome


def shown(report: Report) -> str:
    return "".join(render(report, output) for output in FORMATS)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("credential", CREDENTIALS)
def test_a_known_shape_is_an_error_wherever_it_stands_and_is_never_shown(
    credential: str, place: str
) -> None:
    report = report_of(MODEL + PLACES[place].format(CREDENTIALS[credential]))

    assert "credential-in-manifest" in {one.rule for one in report.diagnostics}
    for part in ("tops3cret", "TOPS3CRET"):
        assert part not in shown(report)


@pytest.mark.parametrize(
    "url",
    [
        f"https://{BODY}@h/mcp",
        f"https://user:{BODY}@h/mcp",
        f"https://h/mcp?token={BODY}",
        f"https://h/mcp?page=1&API_KEY={BODY}",
        f"https://h/mcp?api%5Fkey={BODY}",
        f"https://h/mcp?a;sig={BODY}",
        f"https://h/mcp?key={BODY}#x",
        f"https://user:{BODY}/{BODY}@h",
    ],
)
def test_a_credential_in_a_url_is_one_error_and_is_never_shown(url: str) -> None:
    for quote in ("'", '"', ""):
        report = report_of(
            f"{MODEL}mcp:\n  - name: a\n    url: {quote}{url}{quote}\n    default_policy: deny\n"
        )

        assert len(report.diagnostics) == 1
        assert BODY not in shown(report)


@pytest.mark.parametrize(
    "value", [BODY, f"[{BODY}]", f"{{a: {BODY}}}", f"\n      {BODY}", f"|\n      {BODY}"]
)
def test_an_authorization_key_is_an_error_and_its_value_is_never_shown(value: str) -> None:
    report = report_of(
        f"{MODEL}mcp:\n  - name: a\n    url: https://h/\n    default_policy: alow\n"
        f"    Authorization: {value}\n"
    )

    assert [one.rule for one in report.diagnostics] == ["invalid-value", "credential-in-manifest"]
    assert BODY not in shown(report)


@pytest.mark.parametrize(
    "text",
    [
        "Keys begin with sk-ant- and ghp_.",
        "Use bearer authentication-with-long-words.",
        "See https://h.example/?page=2&monkey=1 and mail a@b.example",
        "Basket: task-force-sk-ant-hill",
    ],
)
def test_prose_about_credentials_is_no_credential(text: str) -> None:
    manifest = f"{MODEL}system_prompt: {json.dumps(text)}\n"

    assert isinstance(compile_manifest("version.yaml", View(manifest.encode())), CompiledVersion)


def test_other_query_strings_are_fine() -> None:
    url = "https://h/mcp?tenant=7&keys=2&tokenizer=x"
    manifest = f"{MODEL}mcp: [{{name: a, url: '{url}', default_policy: deny}}]\n"

    outcome = compile_manifest("version.yaml", View(manifest.encode()))

    assert isinstance(outcome, CompiledVersion)
