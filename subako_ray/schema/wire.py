"""Projects a session's log to the product's event stream: same `seq`, its field names.

What the product's clients know keeps its type; everything else becomes a `custom` event whose
`kind` is our event type and whose `payload` is the event (docs/events.md).
"""

from __future__ import annotations

from typing import Any

from subako_ray.schema import events
from subako_ray.schema.outcome import Block, LinkBlock, MediaBlock, TextBlock


def to_wire(record: events.Record) -> dict[str, Any]:
    """Returns the product's flat event for one record."""
    return {"seq": record.seq, **_project(record.event)}


def _project(event: events.Event) -> dict[str, Any]:
    match event:
        case events.SessionCreated():
            return {
                "type": "session_created",
                "agent_id": event.agent,
                "agent_version_id": event.plan_digest,
            }
        case events.CallRequested():
            return {
                "type": "tool_call",
                "call_id": event.call_id,
                "name": event.name,
                "arguments": event.arguments,
            }
        case events.CallEnded(call_id=call_id, outcome=outcome):
            return {
                "type": "tool_result",
                "call_id": call_id,
                "content": [_block(block) for block in outcome.content],
                "is_error": outcome.is_error,
            }
        case events.ApprovalRequested():
            return {
                "type": "approval_requested",
                "call_id": event.call_id,
                "server": event.server,
                "tool": event.tool,
                "arguments": event.arguments,
                "args_hash": event.args_hash,
            }
        case events.ApprovalResolved():
            return event.model_dump(mode="json", exclude_none=True)
        case events.ClientRegistered():
            return {**event.model_dump(mode="json"), "lifetime": {"type": "never"}}
        case (
            events.ClientLeft()
            | events.ClientToolDispatched()
            | events.ClientToolAcked()
            | events.ClientToolFailed()
        ):
            return event.model_dump(mode="json")
        case _:
            payload = event.model_dump(mode="json", exclude={"type"})
            return {"type": "custom", "kind": event.type, "payload": payload}


def _block(block: Block) -> dict[str, Any]:
    match block:
        case TextBlock(text=text):
            shown = text
        case MediaBlock():
            shown = f"[{block.type} {block.mime_type}, {len(block.data)} base64 characters]"
        case LinkBlock():
            shown = f"[resource {block.uri}]"
    return {"type": "text", "data": {"text": shown}}
