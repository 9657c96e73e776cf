"""Bytes of a file to a source, and a source to its tree."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from subako_ray.compiler.credential_shapes import hide_known_shapes
from subako_ray.compiler.diagnostic import Diagnostic, problem
from subako_ray.compiler.parsed import Parsed
from subako_ray.compiler.read_json import read_json
from subako_ray.compiler.source import Source
from subako_ray.schema import limits

# What YAML 1.2.2, section 5.1, does not call printable, and the byte order mark within a text.
# Named one by one: the class of what is printable takes ten times as long to compile.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]"
)
_OTHER_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


class Text(NamedTuple):
    """A source, and why it cannot be read when it cannot."""

    source: Source
    diagnostic: Diagnostic | None


def decode(path: str, data: bytes) -> Text:
    """Makes a source of a file's bytes: UTF-8, with or without a byte order mark.

    A file that is not text gives a source too, so that the diagnostic has a place.
    """
    if len(data) > limits.MANIFEST_BYTES:
        source = Source(path=path, text="")
        message = f"the file is larger than {limits.MANIFEST_BYTES} bytes"
        return Text(source, problem("too-large", message, source.span(0, 0)))
    for mark, name in _OTHER_ENCODINGS:
        if data.startswith(mark):
            source = Source(path=path, text="")
            return Text(source, _not_text(source, 0, f"the file is {name}, not UTF-8"))
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        source = hide_known_shapes(Source(path=path, text=data.decode()))
    except UnicodeDecodeError as error:
        source = hide_known_shapes(Source(path=path, text=data.decode(errors="replace")))
        offset = len(data[: error.start].decode())
        return Text(source, _not_text(source, offset, "a byte here is not UTF-8"))
    return Text(source, None)


def parse(source: Source) -> Parsed:
    """Reads a manifest: JSON when it is named or looks so, else YAML."""
    if source.path.endswith(".json"):
        return read_json(source)
    if source.text.lstrip(" \t\r\n").startswith("{"):
        parsed = read_json(source)
        # YAML's flow style begins with `{` as well.
        if parsed.tree is not None or parsed.diagnostics[-1].rule != "invalid-syntax":
            return parsed
    return parse_yaml(source)


def parse_yaml(source: Source) -> Parsed:
    """Reads YAML."""
    if (found := _UNPRINTABLE.search(source.text)) is not None:
        message = f"the control character U+{ord(found.group()):04X} cannot stand in YAML"
        return Parsed(None, (_not_text(source, found.start(), message),))
    # The YAML parser takes a tenth of a second to import; JSON does without.
    from subako_ray.compiler.read_yaml import read_yaml

    return read_yaml(source)


def _not_text(source: Source, offset: int, message: str) -> Diagnostic:
    return problem(
        "invalid-syntax",
        message,
        source.span(offset, offset + 1),
        help="save the file as UTF-8 text without control characters",
    )
