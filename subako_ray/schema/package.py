"""`subako-package.json`: what a function package says about itself."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from subako_ray.schema import limits
from subako_ray.schema.tool import ToolDescriptor

PACKAGE_FILE = "subako-package.json"
"""The file's name; it stands at the top of the package's folder."""

PackageAbi = Literal["subako.function/1"]
ProtocolVersion = Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
"""Versions of MCP that a program may speak with us over stdio."""

Argument = Annotated[str, Field(min_length=1, pattern=r"^[^\x00]+$")]


class FunctionPackage(BaseModel):
    """A program that speaks MCP over stdio, and the tools it said it has.

    `subako function build` writes `protocol_version` and `tools` by asking the program inside a
    jail; the author writes the rest.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    abi: PackageAbi
    name: Annotated[str, Field(min_length=1, max_length=128)]
    description: str
    command: Annotated[list[Argument], Field(min_length=1)]
    """The program and its arguments; `python3` as the program means the jail's interpreter."""
    protocol_version: ProtocolVersion | None = None
    tools: Annotated[list[ToolDescriptor], Field(max_length=limits.TOOLS_PER_GRANT)] = []

    @model_validator(mode="after")
    def _one_name_one_tool(self) -> Self:
        seen: set[str] = set()
        for tool in self.tools:
            if tool.name in seen:
                raise ValueError(f"two tools are named `{tool.name}`")
            seen.add(tool.name)
        return self
