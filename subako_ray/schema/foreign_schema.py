"""JSON Schemas of strangers: usable or not, and values checked against them, offline.

The validator is the one the schema's `$schema` names. No reference is ever fetched, patterns run
with a bound on backtracking, and integers of any size are compared exactly.
"""

from __future__ import annotations

from typing import Any, Final

import jsonschema_rs

from subako_ray.schema.canonical import CanonicalError, canonical_bytes

_PATTERNS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)
_SHOWN_CHARACTERS: Final = 200


class SchemaNotUsableError(ValueError):
    """A schema cannot be used; the message says why and goes on from "the schema"."""


class SchemaValidator:
    """One foreign schema, ready to check values."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Compiles the schema.

        Raises:
            SchemaNotUsableError: it is none, or it refers to something that is not in it.
        """
        try:
            self._validator = jsonschema_rs.validator_for(
                schema, offline=True, pattern_options=_PATTERNS
            )
        except jsonschema_rs.ValidationError as error:
            if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
                raise SchemaNotUsableError("refers to something that is not in it") from None
            place = pointer(error.instance_path)
            raise SchemaNotUsableError(f"is not a JSON Schema at `{place or '/'}`") from None
        except (jsonschema_rs.ReferencingError, ValueError, RecursionError):
            raise SchemaNotUsableError("cannot be compiled") from None
        self._schema = schema

    def problem(self, value: object) -> str | None:
        """Says in one line what is wrong with the value, or None when it fits."""
        error = next(iter(self._validator.iter_errors(value)), None)
        if error is None:
            return None
        place = pointer(error.instance_path) or "/"
        return f"`{place}` does not satisfy {self._constraint(list(error.schema_path))}"

    def _constraint(self, path: list[str | int]) -> str:
        keyword = str(path[-1]) if path else "the schema"
        rule: Any = self._schema
        for step in path:
            try:
                rule = rule[step]
            except (KeyError, IndexError, TypeError):
                return f"`{keyword}`"
        try:
            shown = canonical_bytes(rule).decode()
        except CanonicalError:
            return f"`{keyword}`"
        if len(shown) > _SHOWN_CHARACTERS:
            return f"`{keyword}`"
        return f"`{keyword}: {shown}`"


def pointer(path: list[str | int]) -> str:
    """Writes a path of keys and indices as a JSON Pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
