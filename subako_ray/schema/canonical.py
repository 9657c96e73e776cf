"""The one byte form of a JSON value: RFC 8785, with integers of any size written exactly.

RFC 8785 (JSON Canonicalization Scheme) carries numbers as IEEE doubles, so an integer beyond
2^53 - 1 has no exact form in it. Foreign schemas and call arguments hold such integers, and what
was approved must be what runs. We write every integer as its decimal digits: for what RFC 8785
can carry the bytes are the same, beyond it they are exact (docs/decisions/0003).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from json.encoder import encode_basestring  # the RFC's string escapes, without the ASCII ones

import rfc8785

from subako_ray.schema import limits


class CanonicalError(ValueError):
    """A value has no canonical form: not JSON, a lone surrogate, or not a finite number."""


def canonical_bytes(value: object) -> bytes:
    """Writes a JSON value as canonical UTF-8 bytes.

    Args:
        value: null, bool, int, float, str, and lists, tuples and dicts (string keys) of them.

    Raises:
        CanonicalError: when the value is not JSON, nests too deep, or a number is not finite.
    """
    try:
        return "".join(_pieces(value, 0)).encode()
    except UnicodeEncodeError:
        raise CanonicalError("a string holds a lone surrogate") from None


def digest(data: bytes) -> str:
    """Returns `sha256:` and the hexadecimal SHA-256 of the bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def parse_json(text: str | bytes) -> object:
    """Reads JSON strictly: no duplicate keys, no NaN or Infinity, bounded depth, exact integers.

    Raises:
        CanonicalError: with one line saying what is wrong.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
        )
    except json.JSONDecodeError as error:
        raise CanonicalError(f"not JSON: {error.msg} at character {error.pos}") from None
    except UnicodeDecodeError:
        raise CanonicalError("not JSON: not UTF-8") from None
    except RecursionError:
        raise CanonicalError("nests too deep") from None
    return value


def _pieces(value: object, depth: int) -> Iterator[str]:
    if depth > limits.ARGUMENTS_DEPTH * 4:
        raise CanonicalError("nests too deep")
    match value:
        case None:
            yield "null"
        case bool():
            yield "true" if value else "false"
        case str():
            yield encode_basestring(value)
        case int():
            yield str(value)
        case float():
            try:
                yield rfc8785.dumps(value).decode()
            except rfc8785.FloatDomainError:
                raise CanonicalError("a number is not finite") from None
        case Mapping():
            yield "{"
            for index, key in enumerate(sorted(value, key=_utf16)):
                if index:
                    yield ","
                yield encode_basestring(key)
                yield ":"
                yield from _pieces(value[key], depth + 1)
            yield "}"
        case Sequence():
            yield "["
            for index, item in enumerate(value):
                if index:
                    yield ","
                yield from _pieces(item, depth + 1)
            yield "]"
        case _:
            raise CanonicalError(f"a {type(value).__name__} is not JSON")


def _utf16(key: object) -> bytes:
    if not isinstance(key, str):
        raise CanonicalError("a key is not a string")
    try:
        return key.encode("utf-16-be")
    except UnicodeEncodeError:
        raise CanonicalError("a string holds a lone surrogate") from None


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise CanonicalError(f"the key {json.dumps(key)} stands twice in one object")
            seen.add(key)
    return found


def _refuse_constant(text: str) -> object:
    raise CanonicalError(f"`{text}` is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise CanonicalError(f"the number {text[:40]} is too large")
    return number


def _integer(text: str) -> int:
    # CPython refuses to read integers of more than 4300 digits, by a ValueError of its own words.
    if len(text) > 1000:
        raise CanonicalError("an integer has more than 1000 digits")
    return int(text)
