"""Whether a tool's JSON Schema can be used to check arguments."""

from __future__ import annotations

from typing import Any


def schema_problem(schema: dict[str, Any]) -> str | None:
    """Says why a schema cannot be used, or None when it can. Nothing is ever fetched."""
    # Imported with the first package, because most of what compiles has none.
    from subako_ray.schema.foreign_schema import SchemaNotUsableError, SchemaValidator

    try:
        SchemaValidator(schema)
    except SchemaNotUsableError as error:
        return str(error)
    return None
