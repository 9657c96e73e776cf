"""Cuts an outcome to what a model should be given, with a stated marker for what was left out."""

from __future__ import annotations

from typing import Any

from subako_ray.executor.nesting import nests_deeper
from subako_ray.schema import limits
from subako_ray.schema.canonical import CanonicalError, canonical_bytes
from subako_ray.schema.outcome import Block, LinkBlock, MediaBlock, Outcome, TextBlock


def cap(outcome: Outcome, limit_bytes: int = limits.RESULT_BYTES) -> Outcome:
    """Returns the outcome with at most `limit_bytes` of content; markers come on top."""
    left = limit_bytes
    cut = outcome.cut_bytes
    content: list[Block] = []
    for block in map(_well_formed, outcome.content[: limits.RESULT_BLOCKS]):
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
                kind = f"{block.type} {block.mime_type[:100]}"
                content.append(TextBlock(text=f"[left out: {kind}, {size} bytes]"))
            case LinkBlock():
                content.append(TextBlock(text=f"[left out: a link of {size} bytes]"))
    over = [_size(_well_formed(block)) for block in outcome.content[limits.RESULT_BLOCKS :]]
    if over:
        cut += sum(over)
        text = f"[left out: {len(over)} blocks more, {sum(over)} bytes]"
        content.append(TextBlock(text=text))
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
    parts = {
        name: value.encode("utf-8", "replace").decode()
        for name, value in block
        if isinstance(value, str)
    }
    return block.model_copy(update=parts)


def _size(block: Block) -> int:
    match block:
        case TextBlock(text=text):
            return len(text.encode())
        case MediaBlock(data=data, mime_type=mime_type):
            return len(data) + len(mime_type)
        case LinkBlock(uri=uri, name=name, mime_type=mime_type):
            return len(uri) + len(name or "") + len(mime_type or "")


def _structured(value: Any, left: int) -> tuple[Any, int]:
    if value is None:
        return None, 0
    if nests_deeper(value, limits.LOGGED_DEPTH):
        return None, 1
    try:
        size = len(canonical_bytes(value))
    except CanonicalError:
        return None, 1
    return (value, 0) if size <= left else (None, size)
