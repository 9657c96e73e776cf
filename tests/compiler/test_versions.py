"""What a version compiles to: names and policies, files that may be packed, one digest."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifest_bench import MODEL, PACKAGE, SKILL, View, compiled, lines, refused
from ruamel.yaml import YAML
from syrupy.assertion import SnapshotAssertion

from subako_ray.compiler import CompiledVersion, compile_manifest, compile_version
from subako_ray.compiler.render import render
from subako_ray.schema.bundle import read
from subako_ray.schema.manifest import json_schema
from subako_ray.schema.names import split_name

EXAMPLE = Path(__file__).parents[2] / "examples" / "support" / "version.yaml"


def skill_folder(top: Path) -> Path:
    folder = top / "notes"
    folder.mkdir()
    (folder / "SKILL.md").write_text(SKILL)
    return folder


def test_n3_a_tool_whose_name_holds_two_underscores_splits_as_grant_and_tool(
    tmp_path: Path,
) -> None:
    plan = compiled(
        tmp_path,
        f"{MODEL}mcp:\n  - name: a\n    url: https://a.example/\n    default_policy: deny\n"
        "    tools: [{name: b__c, policy: allow}]\n",
    ).plan

    tool = plan.grants[0].tools[0]
    assert tool.qualified_name == "mcp__a__b__c"
    assert split_name(tool.qualified_name) == ("mcp", "a", "b__c")
    grant = "{name: x__y, url: 'https://a.example/', default_policy: deny}"
    assert lines(refused(tmp_path, f"{MODEL}mcp: [{grant}]\n")) == ["invalid-grant-name@2"]


def test_n4_a_policy_is_for_the_tool_of_its_own_grant_alone(tmp_path: Path) -> None:
    grant = "  - {{name: {}, url: 'https://h/', default_policy: allow, tools: [{}]}}\n"
    one, other = "{name: search, policy: deny}", "{name: search, policy: require_approval}"

    plan = compiled(
        tmp_path, f"{MODEL}mcp:\n{grant.format('a', one)}{grant.format('b', other)}"
    ).plan

    policies = {tool.qualified_name: tool.policy for g in plan.grants for tool in g.tools}
    assert policies == {"mcp__a__search": "deny", "mcp__b__search": "require_approval"}


def test_k1_the_head_of_a_skill_is_wrong_with_file_and_line(tmp_path: Path) -> None:
    folder = skill_folder(tmp_path)
    manifest = f"{MODEL}skills: [{{name: notes, path: notes}}]\n"
    for head, expected in {
        "---\nname: a\ndescription: Use when: x\n---\n": "invalid-syntax@3",
        "---\nname: a\nname: b\ndescription: c\n---\n": "duplicate-key@3",
        "---\nname: a\ndescription: b\n": "invalid-skill@1",
        "name: a\n": "invalid-skill@1",
        "---\nname: a\n---\n": "invalid-skill@2",
    }.items():
        (folder / "SKILL.md").write_text(head)
        report = refused(tmp_path, manifest)
        assert lines(report) == [expected]
        assert report.diagnostics[0].primary.span.path == "notes/SKILL.md"
        assert report.diagnostics[0].secondary[-1].span.path == "version.yaml"


@pytest.mark.parametrize("what", ["link", "link-to-folder", "hidden-link", "pipe"])
@pytest.mark.parametrize(
    ("group", "rule"), [("skills", "invalid-skill"), ("functions", "invalid-package")]
)
def test_k2_what_is_no_file_is_not_packed(tmp_path: Path, what: str, group: str, rule: str) -> None:
    folder = skill_folder(tmp_path)
    (folder / "subako-package.json").write_text(PACKAGE)
    match what:
        case "link":
            (folder / "passwd").symlink_to("/etc/passwd")
        case "link-to-folder":
            (folder / "inner").symlink_to("/etc")
        case "hidden-link":
            (folder / "inner").mkdir()
            (folder / "inner" / ".x").symlink_to("../SKILL.md")
        case _:
            os.mkfifo(folder / "pipe")
    policy = ", default_policy: deny" if group == "functions" else ""

    report = refused(tmp_path, f"{MODEL}{group}: [{{name: notes, path: notes{policy}}}]\n")

    assert lines(report) == [f"{rule}@2"]


def test_a_strangers_change_packs_nothing_of_the_host(tmp_path: Path) -> None:
    """Paths that lead out, links on the way, links as the file, and a device."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "SKILL.md").write_text(SKILL)
    (secret / "prompt.j2").write_text("host's own")
    (checkout / "out").symlink_to(secret)
    (checkout / "prompt.j2").symlink_to(secret / "prompt.j2")
    (checkout / "include.j2").write_text("{% include 'out/prompt.j2' ignore missing %}")
    os.mkfifo(checkout / "pipe")
    for grant in [
        "skills: [{name: a, path: ../secret}]",
        "skills: [{name: a, path: out}]",
        "skills: [{name: a, path: out/../../secret}]",
        f"skills: [{{name: a, path: '{secret}'}}]",
        "skills: [{name: a, path: pipe}]",
        "functions: [{name: a, path: out, default_policy: allow}]",
        "system_prompt: {template: prompt.j2}",
        "system_prompt: {template: out/prompt.j2}",
        "system_prompt: {template: ../secret/prompt.j2}",
        "system_prompt: {template: include.j2}",
        "system_prompt: {template: pipe}",
        "system_prompt: {template: /dev/zero}",
        'skills: [{name: a, path: "a\\0b"}]',
    ]:
        report = refused(checkout, f"{MODEL}{grant}\n")
        assert report.diagnostics[0].rule in ("path-outside-root", "file-not-found")
        assert "host's own" not in render(report, "full")


def test_a_root_above_the_manifest_lets_it_name_files_beside_its_folder(tmp_path: Path) -> None:
    skill_folder(tmp_path)
    agents = tmp_path / "agents"
    agents.mkdir()
    manifest = f"{MODEL}skills: [{{name: notes, path: ../notes}}]\n"

    assert lines(refused(agents, manifest)) == ["path-outside-root@2"]
    outcome = compile_version(agents / "version.yaml", tmp_path)

    assert isinstance(outcome, CompiledVersion)
    assert len(outcome.bundles) == 1


def test_a_bundle_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    manifest = f"{MODEL}skills: [{{name: notes, path: notes}}]\n"
    bundles = []
    for name, order in (("one", 1), ("two", -1)):
        top = tmp_path / name
        top.mkdir()
        folder = skill_folder(top)
        for file in ("b", "a", "c")[::order]:
            (folder / file).write_text(file)
        (folder / "a").chmod(0o700)
        (folder / "b").chmod(0o604)
        os.utime(folder / "c", (order + 10, order + 10))
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / f"{name}.pyc").write_bytes(b"x")
        bundles.append(compiled(top, manifest).bundles)

    assert bundles[0] == bundles[1]
    (data,) = bundles[0].values()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {m.name: (m.mode, m.uid, m.gid, m.mtime, m.uname) for m in archive}
    assert members == {
        "SKILL.md": (0o644, 0, 0, 0, ""),
        "a": (0o755, 0, 0, 0, ""),
        "b": (0o644, 0, 0, 0, ""),
        "c": (0o644, 0, 0, 0, ""),
    }


def test_a_literal_prompt_is_never_rendered(tmp_path: Path) -> None:
    plan = compiled(tmp_path, f'{MODEL}system_prompt: "{{{{ 7 * 7 }}}} {{% raw %}}"\n').plan

    assert plan.system_prompt == "{{ 7 * 7 }} {% raw %}"


def test_a_template_prints_nothing_that_differs_from_run_to_run(tmp_path: Path) -> None:
    for text in ("{{ range }}", "{{ [1, 2] | random }}", "{{ lipsum() }}", "{{ self }}"):
        (tmp_path / "p.j2").write_text(text)
        report = refused(tmp_path, f"{MODEL}system_prompt: {{template: p.j2}}\n")
        assert lines(report) == ["template-error@1"], text


def test_a_template_that_renders_a_credential_is_refused_and_shows_none(tmp_path: Path) -> None:
    (tmp_path / "p.j2").write_text("{{ 'sk-' ~ 'ant-' ~ 'tops3cretvalue' }}")

    report = refused(tmp_path, f"{MODEL}system_prompt: {{template: p.j2}}\n")

    assert lines(report) == ["credential-in-manifest@2"]


def test_the_example_compiles_to_the_plan_in_the_snapshot(snapshot: SnapshotAssertion) -> None:
    outcome = compile_version(EXAMPLE)

    assert isinstance(outcome, CompiledVersion)
    assert {
        tool.qualified_name: (tool.policy, tool.pin)
        for grant in outcome.plan.grants
        for tool in grant.tools
    } == snapshot
    assert [read(data)[0].path for data in outcome.bundles.values()] == snapshot


NAMES = st.from_regex(r"[a-z0-9-]{1,8}", fullmatch=True).filter(lambda name: name != "parent")
POLICIES = st.sampled_from(["allow", "require_approval", "deny"])
SERVERS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES, "url": st.just("https://a.example/mcp"), "default_policy": POLICIES},
        optional={"on_drift": POLICIES},
    ),
    max_size=4,
    unique_by=lambda server: server["name"],
)
MANIFESTS = st.fixed_dictionaries(
    {"model": st.just({"format": "anthropic", "model": "m", "max_tokens": 1})},
    optional={
        "agent": st.text(min_size=1, max_size=20, alphabet=st.characters(codec="utf-8")),
        "mcp": SERVERS,
        "builtins": st.just(["session"]),
        "system_prompt": st.none() | st.text(max_size=20, alphabet=st.characters(codec="utf-8")),
    },
)


def digest_of(data: bytes, name: str) -> str:
    outcome = compile_manifest(name, View(data))
    assert isinstance(outcome, CompiledVersion), render(outcome, "full")
    return outcome.plan.digest


def as_yaml(value: object, *, flow: bool) -> bytes:
    emitter = YAML(typ="safe", pure=True)
    emitter.default_flow_style = flow
    emitter.allow_unicode = False
    written = io.BytesIO()
    emitter.dump(value, written)
    return b"# a comment\n" + written.getvalue() + b"\n# another\n"


@given(manifest=MANIFESTS, data=st.data())
def test_the_digest_ignores_layout(manifest: dict[str, object], data: st.DataObject) -> None:
    shuffled = {key: manifest[key] for key in data.draw(st.permutations(sorted(manifest)))}

    digests = {
        digest_of(json.dumps(manifest).encode(), "version.json"),
        digest_of(json.dumps(shuffled, indent=3, ensure_ascii=False).encode(), "version.yaml"),
        digest_of(as_yaml(shuffled, flow=False), "version.yaml"),
        digest_of(as_yaml(manifest, flow=True).replace(b"\n", b"\r\n"), "version.yaml"),
    }

    assert len(digests) == 1


@given(one=MANIFESTS, other=MANIFESTS)
def test_versions_of_one_digest_grant_the_same(
    one: dict[str, object], other: dict[str, object]
) -> None:
    def meant(manifest: dict[str, object]) -> object:
        servers = manifest.get("mcp") or []
        assert isinstance(servers, list)
        return {
            **{key: manifest.get(key) or None for key in ("agent", "builtins")},
            "system_prompt": manifest.get("system_prompt"),
            "mcp": sorted(({"on_drift": "require_approval", **s} for s in servers), key=str),
        }

    same = digest_of(json.dumps(one).encode(), "a.json") == digest_of(
        json.dumps(other).encode(), "a.json"
    )

    assert same == (meant(one) == meant(other))


REFERENCE = jsonschema.Draft202012Validator(json_schema())
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 300)
    | st.sampled_from([1.0, 0.5])
    | NAMES
    | POLICIES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)


@given(manifest=MANIFESTS, key=st.sampled_from(sorted(json_schema()["properties"])), value=VALUES)
def test_what_the_schema_refuses_never_compiles(
    manifest: dict[str, object], key: str, value: object
) -> None:
    changed = {**manifest, key: value}
    # What editors and other people's CI ask.
    valid = jsonschema_rs.is_valid(json_schema(), changed) and REFERENCE.is_valid(changed)

    outcome = compile_manifest("version.json", View(json.dumps(changed).encode()))

    assert valid or not isinstance(outcome, CompiledVersion)
