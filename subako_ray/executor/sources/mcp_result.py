"""What an MCP tool call returned, as an outcome, and the redaction of tokens from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, assert_never

import mcp_types

from subako_ray.schema.outcome import Block, LinkBlock, MediaBlock, Outcome, TextBlock
from subako_ray.schema.secret import Secret

REDACTED: Final = "[credential removed]"


def outcome_of(result: mcp_types.CallToolResult) -> Outcome:
    """Turns a result into an outcome; every block is kept or replaced by a stated placeholder."""
    return Outcome(
        status="tool_failed" if result.is_error else "succeeded",
        content=tuple(_block(block) for block in result.content),
        structured=result.structured_content,
    )


def redacted(outcome: Outcome, tokens: Sequence[Secret]) -> Outcome:
    """Replaces every appearance of the tokens in all that the outcome says."""
    if not tokens:
        return outcome
    cleaned = without_tokens(outcome.model_dump(mode="json"), tokens)
    return Outcome.model_validate(cleaned)


def without_tokens(value: Any, tokens: Sequence[Secret]) -> Any:
    """Replaces every appearance of the tokens in the strings of a JSON value."""
    match value:
        case str():
            for token in tokens:
                value = value.replace(token.reveal(), REDACTED)
            return value
        case dict():
            return {
                without_tokens(key, tokens): without_tokens(item, tokens)
                for key, item in value.items()
            }
        case list():
            return [without_tokens(item, tokens) for item in value]
        case _:
            return value


def _block(block: mcp_types.ContentBlock) -> Block:
    match block:
        case mcp_types.TextContent():
            return TextBlock(text=block.text)
        case mcp_types.ImageContent():
            return MediaBlock(type="image", data=block.data, mime_type=block.mime_type)
        case mcp_types.AudioContent():
            return MediaBlock(type="audio", data=block.data, mime_type=block.mime_type)
        case mcp_types.ResourceLink():
            return LinkBlock(uri=block.uri, name=block.name, mime_type=block.mime_type)
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as resource):
            return TextBlock(text=resource.text)
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as resource):
            size = len(resource.blob)
            return TextBlock(text=f"[resource {resource.uri}: {size} base64 characters]")
        case mcp_types.EmbeddedResource():
            return TextBlock(text="[resource]")
    assert_never(block)
