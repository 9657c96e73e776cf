"""Grant names, tool names and the words every part shares: kinds and policies."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeGuard, get_args

Kind = Literal["mcp", "skill", "sandbox", "fn", "builtin", "client"]
"""What a grant's tools come from."""

Policy = Literal["allow", "require_approval", "deny"]
"""What happens to a call of a tool."""

KINDS: tuple[Kind, ...] = get_args(Kind)
POLICIES: tuple[Policy, ...] = get_args(Policy)

STRICTNESS: dict[Policy, int] = {"allow": 0, "require_approval": 1, "deny": 2}

SEPARATOR = "__"
GRANT_NAME_PATTERN = r"^[a-z0-9-]{1,32}$"
"""As JSON Schema and pydantic have it, where `$` is the end of the text alone. Python's `re` would
let a newline pass: in code, matching uses `is_grant_name`."""

RESERVED_GRANT_NAMES = frozenset({"parent"})
BUILTIN_NAMES = ("ask_user", "session")

_GRANT_NAME = re.compile(r"[a-z0-9-]{1,32}")
_BUILTIN_NAMES = frozenset(BUILTIN_NAMES)

MODEL_TOOL_NAME_LIMITS: dict[str, int] = {"anthropic": 128, "openai_responses": 64}
"""Longest tool name each model format takes, in characters (the model APIs' documentation)."""

_MODEL_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]+")


class QualifiedName(NamedTuple):
    """A tool's full name, `<kind>__<grant>__<tool>`, in its parts."""

    kind: Kind
    grant: str
    tool: str

    def __str__(self) -> str:
        return SEPARATOR.join(self)


def is_grant_name(text: str) -> bool:
    r"""Says whether `text` is a grant name; matched whole, so `"a\n"` is none."""
    return _GRANT_NAME.fullmatch(text) is not None


def _is_kind(text: str) -> TypeGuard[Kind]:
    return text in KINDS


def split_name(text: str) -> QualifiedName | None:
    """Splits a qualified tool name on its first two `__`; None when it is not one.

    Built-ins have fixed names which may hold `_` (`ask_user`); every other grant name may not,
    so the split is unambiguous.
    """
    kind, first, rest = text.partition(SEPARATOR)
    if not first or not _is_kind(kind):
        return None
    grant, second, tool = rest.partition(SEPARATOR)
    if not second or not tool:
        return None
    known = grant in _BUILTIN_NAMES if kind == "builtin" else is_grant_name(grant)
    return QualifiedName(kind, grant, tool) if known else None


def stricter(one: Policy, other: Policy) -> Policy:
    """Returns the policy that permits less."""
    return one if STRICTNESS[one] >= STRICTNESS[other] else other


def misfit(name: str, model_format: str) -> str | None:
    """Says why a model of this format cannot take the tool name; None when it can.

    Args:
        name: a qualified tool name.
        model_format: `anthropic` or `openai_responses`.
    """
    limit = MODEL_TOOL_NAME_LIMITS[model_format]
    if len(name) > limit:
        return f"has {len(name)} characters, `{model_format}` takes {limit}"
    if not _MODEL_TOOL_NAME.fullmatch(name):
        return f"holds a character that `{model_format}` does not take"
    return None
