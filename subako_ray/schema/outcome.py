"""How a tool call ends: a status, what the model reads, and nothing that is an exception."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

OutcomeStatus = Literal[
    "succeeded",
    "tool_failed",
    "denied",
    "timed_out",
    "limit_exceeded",
    "source_unavailable",
    "cancelled",
    "unknown",
]
"""`unknown`: the call was dispatched and nobody can say whether it ran."""


class OutcomePart(BaseModel):
    """A part of an outcome: frozen, and nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextBlock(OutcomePart):
    """Text for the model."""

    type: Literal["text"] = "text"
    text: str


class MediaBlock(OutcomePart):
    """An image or a sound, base64 as the source sent it."""

    type: Literal["image", "audio"]
    data: str
    mime_type: str


class LinkBlock(OutcomePart):
    """A resource the source names without sending it."""

    type: Literal["resource_link"] = "resource_link"
    uri: str
    name: str | None = None
    mime_type: str | None = None


Block: TypeAlias = Annotated[TextBlock | MediaBlock | LinkBlock, Field(discriminator="type")]


class Outcome(OutcomePart):
    """The end of one call.

    Attributes:
        status: what happened.
        reason: a slug that says why, for programs; null when the status says all.
        content: what the model reads.
        structured: structured content of the tool, any JSON value, or null.
        cut_bytes: bytes that were left out of `content` and `structured` by the cap.
    """

    status: OutcomeStatus
    reason: str | None = None
    content: tuple[Block, ...] = ()
    structured: Any = None
    cut_bytes: int = 0

    @property
    def is_error(self) -> bool:
        """Whether the model is told that the call failed."""
        return self.status != "succeeded"

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))


def ended(status: OutcomeStatus, reason: str | None, text: str) -> Outcome:
    """Makes an outcome of one line of text."""
    return Outcome(status=status, reason=reason, content=(TextBlock(text=text),))
