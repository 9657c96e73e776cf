"""The events of a session's log, version 1: what was asked, decided, dispatched, and how it ended.

The log is the truth of a session: an append-only list of records numbered `seq` from 1. State is a
fold over it, and `schema.wire` projects it to the product's event stream. docs/events.md has the
table.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from subako_ray.schema.names import Kind, Policy
from subako_ray.schema.outcome import Outcome

EVENT_VERSION: Final = 1


class EventPart(BaseModel):
    """A part of an event: frozen, and nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SessionCreated(EventPart):
    """First event of every log. `plan_digest` is the wire's `agent_version_id`."""

    type: Literal["session_created"] = "session_created"
    plan_digest: str
    agent: str | None
    vaults: tuple[str, ...]
    principal: str


class CatalogueTool(EventPart):
    """One tool of the session as its catalogue knows it.

    Attributes:
        version: digest of the tool's descriptor; an approval is for one version. Null while its
            source cannot be asked for it.
        offered: whether the engine is shown the tool; a denied one never is.
        unavailable: why it cannot be called now, or null.
    """

    name: str
    kind: Kind
    grant: str
    tool: str
    policy: Policy
    version: str | None
    offered: bool
    unavailable: str | None = None


class LeftOut(EventPart):
    """A tool a source reported that the session does not have, and why."""

    source: str
    tool: str
    reason: str


class SourceState(EventPart):
    """A source that could not be asked for its tools."""

    source: str
    reason: str


class CatalogueChanged(EventPart):
    """The whole catalogue, whenever it changes."""

    type: Literal["catalogue_changed"] = "catalogue_changed"
    tools: tuple[CatalogueTool, ...]
    left_out: tuple[LeftOut, ...] = ()
    unavailable: tuple[SourceState, ...] = ()


class ClientToolDescriptor(EventPart):
    """A client's tool in the product's words."""

    name: str
    description: str
    parameters: dict[str, Any]


class ClientRegistered(EventPart):
    """A client joined; `name` is the one it was given, perhaps with a counter."""

    type: Literal["client_registered"] = "client_registered"
    client_id: str
    name: str
    tools: tuple[ClientToolDescriptor, ...]


class ClientLeft(EventPart):
    """A client is gone."""

    type: Literal["client_left"] = "client_left"
    client_id: str
    reason: Literal["departed", "timed_out"]


class CallRequested(EventPart):
    """Somebody asked for a call. `args_hash` is over the canonical argument bytes."""

    type: Literal["call_requested"] = "call_requested"
    call_id: str
    name: str
    arguments: dict[str, Any]
    args_hash: str
    requested_by: str


class ApprovalRequested(EventPart):
    """A call is held for a person.

    The approval is for this call, this tool version, this credential and these argument bytes.
    """

    type: Literal["approval_requested"] = "approval_requested"
    call_id: str
    server: str
    tool: str
    arguments: dict[str, Any]
    args_hash: str
    tool_version: str
    credential: str | None
    expires_at: str


class ApprovalResolved(EventPart):
    """A person decided, or the time was up (`resolved_by` is then `expiry`)."""

    type: Literal["approval_resolved"] = "approval_resolved"
    call_id: str
    decision: Literal["allow", "deny"]
    deny_message: str | None = None
    resolved_by: str


class FormRequested(EventPart):
    """A question waits for a person's answer."""

    type: Literal["form_requested"] = "form_requested"
    call_id: str
    message: str
    form_schema: dict[str, Any]


class FormRefused(EventPart):
    """An answer did not fit the form; the form stays open."""

    type: Literal["form_refused"] = "form_refused"
    call_id: str
    reason: str
    answered_by: str


class FormResolved(EventPart):
    """A form was answered, declined or cancelled."""

    type: Literal["form_resolved"] = "form_resolved"
    call_id: str
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None
    resolved_by: str


class CallIntended(EventPart):
    """Everything that could stop the call was passed: it is to run. Not yet handed over."""

    type: Literal["call_intended"] = "call_intended"
    call_id: str
    tool_version: str


class CallDispatched(EventPart):
    """The call is being handed to its source; from here on it may have run."""

    type: Literal["call_dispatched"] = "call_dispatched"
    call_id: str
    source: str


class ClientToolDispatched(EventPart):
    """A client is asked to run one of its tools."""

    type: Literal["client_tool_dispatched"] = "client_tool_dispatched"
    call_id: str
    client_id: str
    tool: str
    arguments: dict[str, Any]


class ClientToolAcked(EventPart):
    """The client has taken the call."""

    type: Literal["client_tool_acked"] = "client_tool_acked"
    call_id: str
    client_id: str


class ClientToolFailed(EventPart):
    """The client did not answer."""

    type: Literal["client_tool_failed"] = "client_tool_failed"
    call_id: str
    client_id: str
    reason: Literal["client_gone", "ack_timeout", "result_timeout", "run_gone"]


class CallEnded(EventPart):
    """The one outcome of a call."""

    type: Literal["call_ended"] = "call_ended"
    call_id: str
    outcome: Outcome


class CancelRequested(EventPart):
    """A call (or, with null, the session) is to be cancelled."""

    type: Literal["cancel_requested"] = "cancel_requested"
    call_id: str | None
    requested_by: str


class SessionNamed(EventPart):
    """The session was given a name people see."""

    type: Literal["session_named"] = "session_named"
    name: str


class SandboxChanged(EventPart):
    """A sandbox of the session went into another status."""

    type: Literal["sandbox_changed"] = "sandbox_changed"
    name: str
    status: Literal[
        "dormant", "provisioning", "running", "draining", "suspended", "archived", "failed"
    ]
    detail: str | None = None


class SessionEnded(EventPart):
    """Last event of a log: no call can be made any more."""

    type: Literal["session_ended"] = "session_ended"
    reason: Literal["closed", "cancelled"]


Event: TypeAlias = (
    SessionCreated
    | CatalogueChanged
    | ClientRegistered
    | ClientLeft
    | CallRequested
    | ApprovalRequested
    | ApprovalResolved
    | FormRequested
    | FormRefused
    | FormResolved
    | CallIntended
    | CallDispatched
    | ClientToolDispatched
    | ClientToolAcked
    | ClientToolFailed
    | CallEnded
    | CancelRequested
    | SessionNamed
    | SandboxChanged
    | SessionEnded
)


class Record(EventPart):
    """One event in its place in a log.

    Attributes:
        version: of the event types, 1.
        session_id: whose log it is.
        seq: its number, from 1 without gaps.
        at: when it was appended, RFC 3339 in UTC with milliseconds.
        event: what happened.
    """

    version: Literal[1] = EVENT_VERSION
    session_id: str
    seq: int
    at: str
    event: Annotated[Event, Field(discriminator="type")]
