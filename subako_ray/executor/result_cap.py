"""Cuts an outcome to what a model should be given, with a stated marker for what was left out."""

from __future__ import annotations

from typing import Any

from subako_ray.schema import limits
from subako_ray.schema.canonical import CanonicalError, canonical_bytes
from subako_ray.schema.outcome import Block, LinkBlock, MediaBlock, Outcome, TextBlock


def cap(outcome: Outcome, limit_bytes: int = limits.RESULT_BYTES) -> Outcome:
    """Returns the outcome with at most `limit_bytes` of content; markers come on top."""
    left = limit_bytes
    cut = outcome.cut_bytes
    content: list[Block] = []
    for block in map(_well_formed, outcome.content):
        size = _size(block)
        if size <= left:
            content.append(block)
            left -= size
            continue
        cut += size
        match block:
            case TextBlock(text=text):
                kept = text.encode()[:left].decode("utf-8", "ignore")
                cut -= len(kept.encode())
                shown = f"{kept}\n[cut: {size - len(kept.encode())} bytes more]"
                content.append(TextBlock(text=shown.lstrip("\n")))
                left = 0
            case MediaBlock():
                content.append(
                    TextBlock(text=f"[left out: {block.type} {block.mime_type}, {size} bytes]")
                )
            case LinkBlock():
                content.append(TextBlock(text=f"[left out: a link of {size} bytes]"))
    structured, structured_cut = _structured(outcome.structured, left)
    if structured_cut:
        content.append(TextBlock(text=f"[left out: structured content, {structured_cut} bytes]"))
    return outcome.model_copy(
        update={
            "content": tuple(content),
            "structured": structured,
            "cut_bytes": cut + structured_cut,
        }
    )


def _well_formed(block: Block) -> Block:
    # A lone surrogate has no UTF-8 form, so no log and no model could take it.
    if isinstance(block, TextBlock):
        return TextBlock(text=block.text.encode("utf-8", "replace").decode())
    return block


def _size(block: Block) -> int:
    match block:
        case TextBlock(text=text):
            return len(text.encode())
        case MediaBlock(data=data):
            return len(data)
        case LinkBlock(uri=uri, name=name):
            return len(uri) + len(name or "")


def _structured(value: Any, left: int) -> tuple[Any, int]:
    if value is None:
        return None, 0
    try:
        size = len(canonical_bytes(value))
    except CanonicalError:
        return None, 1
    return (value, 0) if size <= left else (None, size)
