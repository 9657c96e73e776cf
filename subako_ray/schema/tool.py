"""What a source says about one tool: name, texts, schemas, hints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

TOOL_NAME_CHARACTERS = 128


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("a tool name holds a character that cannot be printed")
    return name


ToolName = Annotated[
    str, Field(min_length=1, max_length=TOOL_NAME_CHARACTERS), AfterValidator(_printable)
]
"""A tool's name exactly as its source reports it; which models take it is decided elsewhere."""


class ToolDescriptor(BaseModel):
    """One tool as its source describes it (MCP `Tool`, in our spelling).

    `input_schema` and `output_schema` are JSON Schema objects and `annotations` are MCP tool
    hints; all three are carried as they came.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ToolName
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, object]
    output_schema: dict[str, object] | None = None
    annotations: dict[str, object] | None = None

    @classmethod
    def from_mcp(cls, tool: Mapping[str, object]) -> ToolDescriptor:
        """Reads an entry of `tools/list`; keys that are not part of a descriptor are left out.

        Raises:
            pydantic.ValidationError: when it is no tool.
        """
        return cls.model_validate(
            {ours: tool[theirs] for theirs, ours in _MCP_KEYS.items() if theirs in tool}
        )


_MCP_KEYS = {
    "name": "name",
    "title": "title",
    "description": "description",
    "inputSchema": "input_schema",
    "outputSchema": "output_schema",
    "annotations": "annotations",
}
