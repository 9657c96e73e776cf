"""The canonical form: RFC 8785 where it can carry the value, exact beyond it."""

from __future__ import annotations

import json

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from subako_ray.schema.canonical import CanonicalError, canonical_bytes, parse_json

SAFE = 2**53 - 1
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-SAFE, SAFE)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_it_is_rfc_8785_for_all_that_rfc_8785_can_carry(value: object) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)  # type: ignore[arg-type]


@given(VALUES)
def test_what_is_written_reads_back_as_the_same_bytes(value: object) -> None:
    data = canonical_bytes(value)
    assert canonical_bytes(parse_json(data)) == data


@given(st.integers())
def test_integers_of_any_size_are_exact(number: int) -> None:
    assert parse_json(canonical_bytes([number])) == [number]


@given(st.dictionaries(st.text(), SCALARS), st.randoms(use_true_random=False))
def test_key_order_and_layout_do_not_matter(value: dict[str, object], random: object) -> None:
    shuffled = list(value.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    text = json.dumps(dict(shuffled), indent=3, ensure_ascii=True)
    assert canonical_bytes(parse_json(text)) == canonical_bytes(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a":1,"a":2}',
        "NaN",
        "-Infinity",
        "1e400",
        "[" * 200_000,
        "9" * 2000,
        b"\xff",
        "'a'",
        "[1,]",
    ],
)
def test_what_is_not_strict_json_is_refused_in_one_line(text: str | bytes) -> None:
    with pytest.raises(CanonicalError) as refused:
        parse_json(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", {1: 2}, {"\udc00": 1}, {1}]
)
def test_what_has_no_form_is_refused(value: object) -> None:
    with pytest.raises(CanonicalError):
        canonical_bytes(value)
