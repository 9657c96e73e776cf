"""Whether a tool's JSON Schema can be used to check arguments: whole, offline, bounded."""

from __future__ import annotations

from typing import Any


def schema_problem(schema: dict[str, Any]) -> str | None:
    """Says why a schema cannot be used, or None when it can. Nothing is ever fetched."""
    # Imported with the first package, because most of what compiles has none.
    import jsonschema_rs

    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)
    try:
        jsonschema_rs.validator_for(schema, offline=True, pattern_options=patterns)
    except jsonschema_rs.ValidationError as error:
        if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
            return "refers to something that is not in it"
        place = "".join(f"/{part}" for part in error.instance_path)
        return f"is not a JSON Schema at `{place or '/'}`"
    except (ValueError, RecursionError):
        return "cannot be compiled"
    return None
