"""`SKILL.md`: what a skill says about itself in the head of its main file."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

SKILL_FILE: Final = "SKILL.md"
"""The file's name; it stands at the top of the skill's folder."""


class SkillHead(BaseModel):
    """The YAML between the two `---` lines; keys that other tools read are left alone."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Annotated[str, Field(min_length=1, max_length=64)]
    description: Annotated[str, Field(min_length=1, max_length=1024)]
