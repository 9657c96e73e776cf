"""Built-in sources: `ask_user` puts a form to the person, `session` names the session."""

from __future__ import annotations

from typing import Literal

from subako_ray.executor.forms import Forms
from subako_ray.executor.session_log import SessionLog
from subako_ray.executor.source import Listing, SourceCall, offered_from_plan
from subako_ray.schema.canonical import canonical_bytes
from subako_ray.schema.events import SessionNamed
from subako_ray.schema.foreign_schema import SchemaNotUsableError
from subako_ray.schema.outcome import Outcome, TextBlock, ended
from subako_ray.schema.plan import PlanTool


class AskUserSource:
    """`builtin__ask_user__ask`: a form for the person of the session."""

    kind: Literal["builtin"] = "builtin"
    name = "ask_user"

    def __init__(self, tools: tuple[PlanTool, ...], forms: Forms) -> None:
        self._tools = tools
        self._forms = forms

    async def open(self) -> Listing:
        """Lists the tool `ask`."""
        return offered_from_plan(self._tools)

    async def credential(self) -> str | None:
        """A question takes no credential."""
        return None

    async def call(self, call: SourceCall) -> Outcome:
        """Waits for the answer; a decline or cancel is an answer too."""
        try:
            answer = await self._forms.ask(
                call.call_id, call.arguments["message"], call.arguments["schema"]
            )
        except SchemaNotUsableError as error:
            return ended("tool_failed", "form_not_usable", f"the form cannot be shown: {error}")
        value: dict[str, object] = {"action": answer.action}
        if answer.content is not None:
            value["content"] = answer.content
        return Outcome(
            status="succeeded",
            content=(TextBlock(text=canonical_bytes(value).decode()),),
            structured=value,
        )

    async def close(self) -> None:
        """Holds nothing."""


class SessionSource:
    """`builtin__session__name`: gives the session a name that people see."""

    kind: Literal["builtin"] = "builtin"
    name = "session"

    def __init__(self, tools: tuple[PlanTool, ...], log: SessionLog) -> None:
        self._tools = tools
        self._log = log

    async def open(self) -> Listing:
        """Lists the tool `name`."""
        return offered_from_plan(self._tools)

    async def credential(self) -> str | None:
        """Naming takes no credential."""
        return None

    async def call(self, call: SourceCall) -> Outcome:
        """Records the name; the last one given is the session's."""
        name = call.arguments["name"]
        self._log.append(SessionNamed(name=name))
        return ended("succeeded", None, f"the session is now named `{name}`")

    async def close(self) -> None:
        """Holds nothing."""
