"""Targets: one written normalisation, exact matches, strict reading (case C2)."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from subako_ray.schema.target import McpTarget, Origin, TargetError, near_miss

GRANT = McpTarget.parse("https://h/mcp")

SCHEMES = st.sampled_from(["http", "https", "HTTP", "hTTpS"])
HOSTS = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,8}(\.[A-Za-z0-9-]{1,8}){0,2}", fullmatch=True),
    st.sampled_from(["[::1]", "[2001:DB8::A]", "127.0.0.1", "xn--bcher-kva.example"]),
)
PORTS = st.one_of(st.just(""), st.integers(1, 65_535).map(lambda port: f":{port}"))
PATHS = st.from_regex(r"(/([A-Za-z0-9_~:@]|%[0-9A-Fa-f]{2})*){0,3}", fullmatch=True).filter(
    lambda path: "%2e" not in path.lower()
)
QUERIES = st.from_regex(r"(\?[A-Za-z0-9=&\[\]/?]{0,8})?", fullmatch=True)
URLS = st.builds("{}://{}{}{}{}".format, SCHEMES, HOSTS, PORTS, PATHS, QUERIES)


@pytest.mark.parametrize(
    ("held", "difference"),
    [
        ("https://h", "differs in its path: it has none"),
        ("https://h/", "differs in its path: `/`"),
        ("https://H:443/mcp", None),
        ("https://h/mcp/", "differs in its path: `/mcp/`"),
        ("https://h/mcp?x=1", "differs in its query string"),
        ("https://h/mcpevil", "differs in its path: `/mcpevil`"),
        ("https://h.evil/mcp", "differs in its host: `h.evil`"),
        ("http://h/mcp", "differs in its scheme: `http`"),
    ],
)
def test_c2_only_the_same_url_in_another_case_and_with_the_default_port_matches(
    held: str, difference: str | None
) -> None:
    target = McpTarget.parse(held)
    assert (target == GRANT) is (difference is None)
    assert (str(target) == str(GRANT)) is (difference is None)
    assert near_miss(GRANT, target) == difference


def test_a_near_miss_names_every_part_that_differs() -> None:
    assert (
        near_miss(GRANT, McpTarget.parse("http://h:8443/x"))
        == "differs in its scheme: `http`, its port: `8443`, its path: `/x`"
    )
    assert (
        near_miss(McpTarget.parse("https://h:8443/mcp?a"), GRANT)
        == "differs in its port: `443`, its query string: it has none"
    )


def test_unlike_targets_are_no_near_miss() -> None:
    assert near_miss(GRANT, McpTarget.parse("https://other/elsewhere")) is None


def test_a_near_miss_does_not_quote_a_query() -> None:
    line = near_miss(GRANT, McpTarget.parse("https://h/mcp?tenant=canary"))
    assert line is not None
    assert "canary" not in line


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("HTTPS://Example.COM:443/Path", "https://example.com/Path"),
        ("http://h:80", "http://h"),
        ("http://h:443/", "http://h:443/"),
        ("https://h:80/", "https://h:80/"),
        ("https://h/%2f%2F%41", "https://h/%2f%2F%41"),
        ("https://h//a//", "https://h//a//"),
        ("https://h/mcp?", "https://h/mcp?"),
        ("https://h?X=1", "https://h?X=1"),
        ("https://h/a?b=/../c&d[]=1", "https://h/a?b=/../c&d[]=1"),
        ("https://h./", "https://h./"),
        ("https://[2001:DB8::1]:443/", "https://[2001:db8::1]/"),
        ("https://[0:0:0:0:0:0:0:1]:8/", "https://[0:0:0:0:0:0:0:1]:8/"),
        ("https://XN--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ("https://h/@me:1", "https://h/@me:1"),
    ],
)
def test_the_normal_form_changes_scheme_host_and_default_port_and_nothing_else(
    text: str, normal: str
) -> None:
    assert str(McpTarget.parse(text)) == normal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the URL is empty"),
        ("https://h/" + "a" * 2039, "the URL has more than 2048 characters"),
        ("https://bücher.example/", "the URL has a character that is not ASCII"),
        # The Kelvin sign lower-cases to an ASCII `k`.
        ("https://\u212a.example/", "the URL has a character that is not ASCII"),
        ("https://h\uff0fevil/", "the URL has a character that is not ASCII"),
        (" https://h/", "the URL has a blank or a control character"),
        ("https://h/\n", "the URL has a blank or a control character"),
        ("ht\ttps://h/", "the URL has a blank or a control character"),
        ("https://h/a b", "the URL has a blank or a control character"),
        ("https://h/\x7f", "the URL has a blank or a control character"),
        ("https://h/\x00", "the URL has a blank or a control character"),
        ("https:\\\\h\\mcp", "the URL has a backslash"),
        ("https://h\\@evil/", "the URL has a backslash"),
        ("https://h/#part", "the URL has a fragment"),
        ("https://h/#", "the URL has a fragment"),
        ("https://user:word@h/", "the URL has a user name or a password"),
        ("https://@h/", "the URL has a user name or a password"),
        ("https://user%40h@h/", "the URL has a user name or a password"),
        ("ftp://h/", "the URL does not begin with `http://` or `https://`"),
        ("file:///etc/passwd", "the URL does not begin with `http://` or `https://`"),
        ("h/mcp", "the URL does not begin with `http://` or `https://`"),
        ("//h/mcp", "the URL does not begin with `http://` or `https://`"),
        ("https:/h/mcp", "the URL does not begin with `http://` or `https://`"),
        ("https:h", "the URL does not begin with `http://` or `https://`"),
        ("http:////", "the URL has no host"),
        ("https://", "the URL has no host"),
        ("https:///h/mcp", "the URL has no host"),
        ("https://?x", "the URL has no host"),
        ("https://:443/", "the URL has a bad host"),
        ("https://a..b/", "the URL has a bad host"),
        ("https://.h/", "the URL has a bad host"),
        ("https://h%2eevil/", "the URL has a bad host"),
        ("https://h,evil/", "the URL has a bad host"),
        ("https://::1/", "the URL has a bad host"),
        ("https://[::1/", "the URL has a bad host"),
        ("https://[]/", "the URL has a bad host"),
        ("https://[::1]x/", "the URL has a bad host"),
        ("https://[fe80::1%25eth0]/", "the URL has a bad host"),
        ("https://[v1.x]/", "the URL has a bad host"),
        ("https://[1.2.3.4]/", "the URL has a bad host"),
        ("https://h:/", "the URL has a bad port"),
        ("https://h:0/", "the URL has a bad port"),
        ("https://h:0443/", "the URL has a bad port"),
        ("https://h:65536/", "the URL has a bad port"),
        ("https://h:+443/", "the URL has a bad port"),
        ("https://h:443:443/", "the URL has a bad port"),
        ("https://h/%zz", "the URL has a `%` without two hexadecimal digits after it"),
        ("https://h/?a=%4", "the URL has a `%` without two hexadecimal digits after it"),
        ("https://h/a/../b", "the URL has a path segment `.` or `..`"),
        ("https://h/.", "the URL has a path segment `.` or `..`"),
        ("https://h/%2e%2E/b", "the URL has a path segment `.` or `..`"),
        ("https://h/<a>", "the URL has a character that must be percent-encoded"),
        ("https://h/`a`", "the URL has a character that must be percent-encoded"),
        ("https://h/{id}", "the URL has a character that must be percent-encoded"),
    ],
)
def test_what_is_not_exactly_a_url_is_refused_by_rule(text: str, message: str) -> None:
    with pytest.raises(TargetError) as raised:
        McpTarget.parse(text)
    assert raised.value.message == message


def test_the_longest_target_is_taken() -> None:
    text = "https://h/" + "a" * 2038
    assert str(McpTarget.parse(text)) == text


def test_an_origin_ends_after_its_host_and_port() -> None:
    assert str(Origin.parse("HTTPS://API.example.com:443")) == "https://api.example.com"
    assert Origin.parse("https://h:8443") != Origin.parse("https://h")
    for text in ("https://h/", "https://h/a", "https://h?x", "https://h?"):
        with pytest.raises(TargetError, match="goes on after its host and port"):
            Origin.parse(text)


def test_a_target_and_its_error_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps(GRANT)) == GRANT
    assert pickle.loads(pickle.dumps(TargetError("why"))).message == "why"


@given(URLS)
def test_normalising_twice_is_normalising_once(text: str) -> None:
    target = McpTarget.parse(text)
    assert McpTarget.parse(str(target)) == target
    assert str(McpTarget.parse(str(target))) == str(target)


@given(URLS)
def test_the_normal_form_differs_in_case_and_default_port_alone(text: str) -> None:
    target = McpTarget.parse(text)
    assert str(target).lower() in {
        text.lower(),
        text.lower().replace(f"{target.origin.host}:443", target.origin.host, 1),
        text.lower().replace(f"{target.origin.host}:80", target.origin.host, 1),
    }


@given(URLS, URLS)
def test_targets_are_equal_exactly_when_their_texts_are(one: str, other: str) -> None:
    left, right = McpTarget.parse(one), McpTarget.parse(other)
    assert (left == right) is (str(left) == str(right))
    if left == right:
        assert near_miss(left, right) is None


@given(st.one_of(st.text(), st.text("htps:/@[]#?%.\\ \tA0é", max_size=20).map("https://".__add__)))
@example("https://[::1]:443/%41")
def test_reading_any_text_ends_in_a_printable_target_or_a_target_error(text: str) -> None:
    try:
        target = str(McpTarget.parse(text))
    except TargetError:
        return
    assert target.isascii()
    assert target.isprintable()
    assert McpTarget.parse(target) == McpTarget.parse(text)
