"""A plan's tools as a table for people: name, policy, where a call runs, what it may reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, assert_never

from subako_ray.schema.plan import (
    BuiltinPlanGrant,
    FunctionPlanGrant,
    McpPlanGrant,
    Plan,
    PlanGrant,
    SandboxPlanGrant,
    SkillPlanGrant,
)
from subako_ray.schema.printable import printable


class Row(NamedTuple):
    """One line of the table."""

    tool: str
    policy: str
    runs: str
    reaches: str


HEADER = Row("TOOL", "POLICY", "RUNS", "REACHES")


def table_of(plan: Plan) -> str:
    """Returns the table of a plan, one row a tool."""
    rows = [HEADER, *(row for grant in plan.grants for row in rows_of(grant))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def rows_of(grant: PlanGrant) -> Iterator[Row]:
    """Yields a row for every tool of a grant, and one for those only its source knows."""
    runs, reaches = _place(grant)
    for tool in grant.tools:
        yield Row(printable(tool.qualified_name), tool.policy, runs, reaches)
    if isinstance(grant, McpPlanGrant):
        yield Row(f"mcp__{grant.name}__(any other)", grant.default_policy, runs, reaches)


def _place(grant: PlanGrant) -> tuple[str, str]:
    match grant:
        case McpPlanGrant():
            return "on its server", f"{printable(grant.url)}, with a vault's credential"
        case SkillPlanGrant():
            return "in the session", "the skill's own files"
        case FunctionPlanGrant():
            return "in a fresh jail", ", ".join(map(printable, grant.origins)) or "nothing"
        case SandboxPlanGrant():
            network = "nothing" if grant.network == "none" else "any network"
            return "in the session's machine", network
        case BuiltinPlanGrant():
            return "in the session", "the person" if grant.name == "ask_user" else "the session"
    assert_never(grant)
