"""Skill source: lists and reads the files of a skill's bundle, and no other file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from subako_ray.executor.source import Listing, SourceCall, offered_from_plan
from subako_ray.schema.outcome import Outcome, TextBlock, ended
from subako_ray.schema.plan import PlanTool


class SkillSource:
    """One skill of a session."""

    kind: Literal["skill"] = "skill"

    def __init__(
        self, name: str, tools: tuple[PlanTool, ...], folder: Path, files: tuple[str, ...]
    ) -> None:
        """Makes the source of one skill.

        Args:
            name: the grant's.
            tools: as the plan records them.
            folder: the unpacked bundle.
            files: the bundle's files as the plan lists them; nothing else can be read.
        """
        self.name = name
        self._tools = tools
        self._folder = folder
        self._files = frozenset(files)

    async def open(self) -> Listing:
        """Lists the tool `read`."""
        return offered_from_plan(self._tools)

    async def credential(self) -> str | None:
        """A skill takes no credential."""
        return None

    async def call(self, call: SourceCall) -> Outcome:
        """Answers `read`: the listing without a path, the file's text with one."""
        path = call.arguments.get("path")
        if path is None:
            listing = "\n".join(sorted(self._files))
            return Outcome(status="succeeded", content=(TextBlock(text=listing),))
        # Only names the plan lists are opened, so no path can lead out of the bundle.
        if path not in self._files:
            return ended(
                "tool_failed", "no_such_file", f"skill `{self.name}` has no file `{path[:200]}`"
            )
        data = self._folder.joinpath(path).read_bytes()
        try:
            return Outcome(status="succeeded", content=(TextBlock(text=data.decode()),))
        except UnicodeDecodeError:
            return ended(
                "tool_failed", "not_text", f"`{path}` is not text: {len(data)} bytes of data"
            )

    async def close(self) -> None:
        """Holds nothing."""
