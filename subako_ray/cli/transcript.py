"""Prints a session's log for people, as it happens: who asked, who decided, how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from subako_ray.schema import events
from subako_ray.schema.canonical import canonical_bytes
from subako_ray.schema.outcome import LinkBlock, MediaBlock, Outcome, TextBlock
from subako_ray.schema.printable import printable

Style = Literal["note", "heading", "plain", "good", "bad", "held", "dim"]

_CODES: Final[dict[Style, str]] = {
    "note": "\x1b[36m",
    "heading": "\x1b[1m",
    "plain": "",
    "good": "\x1b[32m",
    "bad": "\x1b[31m",
    "held": "\x1b[33m",
    "dim": "\x1b[2m",
}
_RESET: Final = "\x1b[0m"
_SHOWN_LINES: Final = 12
_SHOWN_CHARACTERS: Final = 400


class Line(NamedTuple):
    """One line of the transcript; its text is safe to print."""

    style: Style
    text: str

    def render(self, *, colour: bool) -> str:
        """Returns the line for a terminal (coloured) or a file (plain)."""
        code = _CODES[self.style]
        return f"{code}{self.text}{_RESET}" if colour and code else self.text


def lines_for(record: events.Record) -> Iterator[Line]:
    """Yields the lines that tell one record; none for those that only programs need."""
    event = record.event
    match event:
        case events.SessionCreated():
            vaults = ", ".join(event.vaults) or "none"
            yield Line("heading", f"session {record.session_id}")
            yield Line("dim", f"  plan {event.plan_digest[:19]}…   vaults: {printable(vaults)}")
        case events.CatalogueChanged():
            yield from _catalogue(event)
        case events.ClientRegistered():
            names = ", ".join(tool.name for tool in event.tools)
            yield Line("plain", f"  client `{event.name}` offers: {printable(names)}")
        case events.CallRequested():
            yield Line("plain", "")
            yield from _call(event.name, event.arguments)
        case events.ApprovalRequested():
            with_what = f"credential {event.credential}" if event.credential else "no credential"
            yield Line("held", f"  held for approval: {event.server}, with {with_what}")
        case events.ApprovalResolved(decision="allow"):
            yield Line("good", f"  allowed by {printable(event.resolved_by)}")
        case events.ApprovalResolved():
            said = f": {printable(event.deny_message)}" if event.deny_message else ""
            yield Line("bad", f"  denied by {printable(event.resolved_by)}{said}")
        case events.FormRequested():
            fields = ", ".join(event.form_schema.get("properties", {}))
            yield Line("held", f"  question: {printable(event.message)} [{printable(fields)}]")
        case events.FormRefused():
            yield Line("bad", f"  the answer does not fit: {printable(event.reason)}")
        case events.FormResolved():
            content = "" if event.content is None else f" {_json(event.content)}"
            who = printable(event.resolved_by)
            yield Line("good", f"  answered by {who}: {event.action}{content}")
        case events.CallDispatched():
            yield Line("dim", f"  sent to {event.source}")
        case events.CallEnded(outcome=outcome):
            yield from _outcome(outcome)
        case events.ClientToolFailed():
            yield Line("bad", f"  the client failed: {event.reason}")
        case events.ClientLeft():
            yield Line("plain", f"  a client left ({event.reason})")
        case events.CancelRequested():
            what = "the session" if event.call_id is None else "the call"
            yield Line("bad", f"  {printable(event.requested_by)} cancelled {what}")
        case events.SandboxChanged():
            detail = f": {printable(event.detail)}" if event.detail else ""
            yield Line("dim", f"  sandbox `{event.name}` is {event.status}{detail}")
        case events.SessionNamed():
            yield Line("dim", f"  the session's name: {printable(event.name)}")
        case events.SessionEnded():
            yield Line("plain", "")
            yield Line("dim", f"session ended ({event.reason}) after {record.seq} events")
        case events.CallIntended() | events.ClientToolDispatched() | events.ClientToolAcked():
            return


def _catalogue(event: events.CatalogueChanged) -> Iterator[Line]:
    offered = sum(tool.offered for tool in event.tools)
    denied = sum(tool.policy == "deny" for tool in event.tools)
    yield Line("plain", f"  tools: {offered} offered, {denied} denied by policy")
    for out in event.left_out:
        yield Line(
            "held", f"  left out: `{printable(out.tool)}` of {out.source}: {printable(out.reason)}"
        )
    for state in event.unavailable:
        yield Line("bad", f"  unavailable: {state.source}: {printable(state.reason)}")


def _call(name: str, arguments: dict[str, Any]) -> Iterator[Line]:
    """Shows text of several lines as lines, and the other arguments as JSON."""
    texts = {
        key: value
        for key, value in arguments.items()
        if isinstance(value, str) and "\n" in value.strip("\n")
    }
    rest = {key: value for key, value in arguments.items() if key not in texts}
    shown = _json(rest) if rest or not texts else ""
    yield Line("heading", f"{printable(name)} {shown}".rstrip())
    for key, text in texts.items():
        yield Line("plain", f"  {printable(key)}:")
        yield from _lines(text.splitlines())


def _lines(shown: list[str]) -> Iterator[Line]:
    for line in shown[:_SHOWN_LINES]:
        yield Line("plain", f"    {_short(printable(line))}")
    if len(shown) > _SHOWN_LINES:
        yield Line("dim", f"    … {len(shown) - _SHOWN_LINES} lines more")


def _outcome(outcome: Outcome) -> Iterator[Line]:
    good = outcome.status == "succeeded"
    reason = f" ({outcome.reason})" if outcome.reason else ""
    yield Line("good" if good else "bad", f"  {outcome.status}{reason}")
    shown: list[str] = []
    for block in outcome.content:
        match block:
            case TextBlock(text=text):
                shown += text.splitlines()
            case MediaBlock():
                shown.append(f"[{block.type} {block.mime_type}]")
            case LinkBlock():
                shown.append(f"[link {block.uri}]")
    yield from _lines(shown)


def _json(value: object) -> str:
    return _short(printable(canonical_bytes(value).decode()))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
