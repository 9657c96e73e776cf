"""The wire projection: the product's field names, the same `seq`, nothing left out."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import TypeAdapter
from syrupy.assertion import SnapshotAssertion

from subako_ray.schema import events
from subako_ray.schema.outcome import LinkBlock, MediaBlock, Outcome, TextBlock
from subako_ray.schema.wire import to_wire

ID = "call_1"
EXAMPLES: list[events.Event] = [
    events.SessionCreated(
        plan_digest="sha256:ab", agent="support", vaults=("acme",), principal="user:ada"
    ),
    events.CatalogueChanged(
        tools=(
            events.CatalogueTool(
                name="mcp__orders__lookup",
                kind="mcp",
                grant="orders",
                tool="lookup",
                policy="allow",
                version="sha256:cd",
                offered=True,
            ),
        ),
        left_out=(events.LeftOut(source="mcp:orders", tool="x", reason="listed 2 times"),),
        unavailable=(events.SourceState(source="mcp:down", reason="cannot be reached"),),
    ),
    events.ClientRegistered(
        client_id="client_1",
        name="shop",
        tools=(events.ClientToolDescriptor(name="show", description="Shows", parameters={}),),
    ),
    events.ClientLeft(client_id="client_1", reason="departed"),
    events.CallRequested(
        call_id=ID,
        name="mcp__orders__lookup",
        arguments={"n": 2**70},
        args_hash="sha256:ef",
        requested_by="engine",
    ),
    events.ApprovalRequested(
        call_id=ID,
        server="mcp:orders",
        tool="lookup",
        arguments={},
        args_hash="sha256:ef",
        tool_version="sha256:cd",
        credential="cred_1",
        expires_at="2026-01-01T00:00:00.000Z",
    ),
    events.ApprovalResolved(call_id=ID, decision="allow", resolved_by="user:ada"),
    events.ApprovalResolved(
        call_id=ID, decision="deny", deny_message="not today", resolved_by="user:ada"
    ),
    events.FormRequested(call_id=ID, message="Size?", form_schema={"type": "object"}),
    events.FormRefused(call_id=ID, reason="`/size` is missing", answered_by="user:ada"),
    events.FormResolved(call_id=ID, action="accept", content={"size": 1}, resolved_by="user:ada"),
    events.CallIntended(call_id=ID, tool_version="sha256:cd"),
    events.CallDispatched(call_id=ID, source="mcp:orders"),
    events.ClientToolDispatched(call_id=ID, client_id="client_1", tool="show", arguments={}),
    events.ClientToolAcked(call_id=ID, client_id="client_1"),
    events.ClientToolFailed(call_id=ID, client_id="client_1", reason="ack_timeout"),
    events.CallEnded(
        call_id=ID,
        outcome=Outcome(
            status="succeeded",
            content=(
                TextBlock(text="done"),
                MediaBlock(type="image", data="aGk=", mime_type="image/png"),
                LinkBlock(uri="file:///x"),
            ),
            structured={"a": 1},
        ),
    ),
    events.CancelRequested(call_id=None, requested_by="user:ada"),
    events.SessionNamed(name="Refund"),
    events.SandboxChanged(name="build", status="running"),
    events.SessionEnded(reason="closed"),
]


def records() -> list[events.Record]:
    """One record of every example."""
    return [
        events.Record(session_id="s", seq=seq, at="2026-01-01T00:00:00.000Z", event=event)
        for seq, event in enumerate(EXAMPLES, 1)
    ]


def test_every_event_type_has_an_example() -> None:
    assert {type(event) for event in EXAMPLES} == set(get_args(events.Event))


def test_the_projection_is_what_it_was(snapshot: SnapshotAssertion) -> None:
    assert [to_wire(record) for record in records()] == snapshot


@pytest.mark.parametrize("record", records(), ids=lambda record: record.event.type)
def test_a_record_survives_its_json(record: events.Record) -> None:
    adapter = TypeAdapter(events.Record)
    assert adapter.validate_json(record.model_dump_json()) == record


@pytest.mark.parametrize("record", records(), ids=lambda record: record.event.type)
def test_seq_is_kept_and_unknown_events_are_custom(record: events.Record) -> None:
    wire = to_wire(record)
    assert wire["seq"] == record.seq
    if wire["type"] == "custom":
        assert wire["kind"] == record.event.type
