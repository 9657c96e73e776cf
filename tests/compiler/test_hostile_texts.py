"""Texts that are broken, huge or deep: read or refused with a place, soon, never a traceback."""

from __future__ import annotations

import time
import tracemalloc
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from manifest_bench import MODEL, View, compiled, lines, refused

from subako_ray.compiler import Report, compile_manifest
from subako_ray.compiler.diagnostic import FORMATS
from subako_ray.compiler.read_text import decode, parse
from subako_ray.compiler.render import render
from subako_ray.compiler.tree import to_data


def test_y1_a_key_that_stands_twice_is_shown_with_both_lines(tmp_path: Path) -> None:
    report = refused(
        tmp_path,
        f"{MODEL}mcp:\n  - name: orders\n    url: https://a.example/\n    default_policy: deny\n"
        "    default_policy: allow\nmcp: []\n",
    )

    assert lines(report) == ["duplicate-key@6", "duplicate-key@7"]
    source = report.sources["version.yaml"]
    firsts = [one.secondary[0].span.start for one in report.diagnostics]
    assert [source.position(start).line for start in firsts] == [5, 2]


def test_y2_words_and_digits_are_what_yaml_1_2_says(tmp_path: Path) -> None:
    manifest = (
        f"{MODEL}sandboxes:\n  - name: no\n    environment: {{type: platform, release: 2026}}\n"
        "    default_policy: off\n    on: x\n"
    )

    report = refused(tmp_path, manifest)

    assert lines(report) == ["invalid-value@4", "invalid-value@5", "unknown-key@6"]
    release, policy, key = report.diagnostics
    assert release.help == 'write `"2026"`'
    assert release.fix is not None
    assert release.fix.replacement == '"2026"'
    assert "string `off`" in policy.message
    assert "`on`" in key.message


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            "a: &a [x]\n"
            + "".join(
                f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            "anchor-not-allowed",
        ),
        ("&a [*a]", "anchor-not-allowed"),
        ("[" * 3000 + "]" * 3000, "too-deep"),
        ("{a: " * 3000, "too-deep"),
        ("- " * 3000 + "x", "too-deep"),
        ("? " * 3000 + "x", "too-deep"),
        ('{"a": ' * 3000 + "1" + "}" * 3000, "too-deep"),
        ("a: " + "[1]," * 3000, "invalid-syntax"),
        ("x" * (50 * 1024 * 1024), "too-large"),
        ("[" + "1," * 110_000 + "1]", "too-large"),
        ("{" + ",".join(f'"k{n}":1' for n in range(51_000)) + "}", "too-large"),
    ],
    ids=[
        "aliases",
        "cycle",
        "lists",
        "mappings",
        "items",
        "keys",
        "json",
        "flow",
        "bytes",
        "values",
        "json-values",
    ],
)
def test_y3_a_text_that_would_grow_is_refused_at_once(text: str, rule: str) -> None:
    begun = time.process_time()

    report = compile_manifest("version.yaml", View(text.encode()))

    assert isinstance(report, Report)
    assert [one.rule for one in report.diagnostics] == [rule]
    # Bounded by the limits on bytes, values and depth; the longest takes some seconds.
    assert time.process_time() - begun < 60


def test_y3_little_memory_is_used_for_what_would_grow() -> None:
    text = "a: &a [x]\n" + "".join(f"k{n}: &b{n} [*a, *a]\n" for n in range(1000))
    tracemalloc.start()

    compile_manifest("version.yaml", View(text.encode()))

    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 16 * 1024 * 1024


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"agent: a\n\tb: c\n", "invalid-syntax@2"),
        (MODEL.encode("utf-16"), "invalid-syntax@1"),
        (MODEL.encode("utf-16-le"), "invalid-syntax@1"),
        (MODEL.encode("utf-32"), "invalid-syntax@1"),
        (b'{"agent":\n"\\ud800"}', "invalid-syntax@2"),
        (b'{"agent":\n"\\q"}', "invalid-syntax@2"),
        (b'agent:\n  "\\ud800"', "invalid-syntax@2"),
        (b"agent: a\nb: \0", "invalid-syntax@2"),
        (b"agent: a\r\nb: \x1b[31m", "invalid-syntax@2"),
        (b"agent: a\n# \xff", "invalid-syntax@2"),
        (b"agent: a\n# \xed\xa0\x80", "invalid-syntax@2"),
        (b'agent:\n  "\\UFFFFFFFF"', "invalid-syntax@1"),
        (b"", "invalid-value@1"),
    ],
)
def test_y4_what_is_no_plain_text_is_refused_with_its_line(
    tmp_path: Path, data: bytes, place: str
) -> None:
    # A flow mapping that is not JSON is read as YAML, and that message is shown.
    assert lines(refused(tmp_path, data))[0] == place


def test_y4_a_byte_order_mark_crlf_and_escaped_pairs_are_read(tmp_path: Path) -> None:
    manifest = b"\xef\xbb\xbf" + MODEL.encode() + b'agent: "\\ud83d\\ude00"\n'

    assert compiled(tmp_path, manifest.replace(b"\n", b"\r\n")).plan.agent == "\N{GRINNING FACE}"
    model = b'\xef\xbb\xbf{"model": {"format": "anthropic", "model": "m", "max_tokens": 1}, '
    json = model + b'"agent": "\\ud83d\\ude00"}'
    assert compiled(tmp_path, json, "version.json").plan.agent == "\N{GRINNING FACE}"


def test_scalars_are_those_of_the_yaml_1_2_core_schema() -> None:
    text = (
        "[~, null, Null, '', True, FALSE, yes, No, on, 1, -01, +2, 0o17, 0x1F, 0b1, 1_000, 1.5, .5,"
        " 1e3, 1., 2026-01-01, 12:30, '1', =, .5.5]"
    )
    parsed = parse(decode("a.yaml", text.encode()).source)

    assert parsed.tree is not None
    assert to_data(parsed.tree) == [
        *(None, None, None, "", True, False, "yes", "No", "on", 1, -1, 2, 15, 31, "0b1", "1_000"),
        *(1.5, 0.5, 1000.0, 1.0, "2026-01-01", "12:30", "1", "=", ".5.5"),
    ]


@pytest.mark.parametrize("name", ["version.yaml", "version.json"])
def test_a_number_of_any_size_is_carried_or_refused(tmp_path: Path, name: str) -> None:
    start = '{"model": {"format": "anthropic", "model": "m", "max_tokens": '

    assert (
        compiled(tmp_path, start + "36893488147419103233}}", name).plan.model.max_tokens
        == 2**65 + 1
    )
    for number in ("9" * 5000, "1e999", "1.0", "-1"):
        assert lines(refused(tmp_path, start + number + "}}", name)) == ["invalid-value@1"]


PIECES = st.sampled_from(
    [
        *"abc:,[]{}\"'\\|>#%?@`~ \t\r\n漢\x85\u2028\ufeff",
        "&a",
        "*a",
        "!",
        "!!str ",
        "---",
        "...",
        ".inf",
        "0x",
        "<<",
        "model",
        "mcp",
        "null",
        ": ",
        "- ",
        "? ",
        " #",
        "  ",
        "%YAML 1.1\n",
        "\\x",
        "\\ud800",
    ]
)
TEXTS = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(PIECES, max_size=40).map(lambda pieces: "".join(pieces).encode()),
)


@given(data=TEXTS, name=st.sampled_from(["version.yaml", "version.json", "\u202eversion.yaml"]))
@example(data=b"%", name="version.yaml")
@example(data=b"? [a]\n: b", name="version.yaml")
@example(data=b"a: |3\n x", name="version.yaml")
def test_reading_never_crashes_and_shows_no_control_character(data: bytes, name: str) -> None:
    report = compile_manifest(name, View(data))

    assert isinstance(report, Report)
    assert report.diagnostics
    for output in FORMATS:
        for line in render(report, output).split("\n"):
            found = {unicodedata.category(character) for character in line}
            assert not found & {"Cc", "Cf", "Cs", "Zl", "Zp"}, (output, line)
