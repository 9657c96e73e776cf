"""Descriptors of the tools that Subako itself provides: sandbox, skill and built-in tools."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from subako_ray.schema import limits


class FixedTool(NamedTuple):
    """A tool whose descriptor is the same for every grant of its kind."""

    name: str
    description: str
    input_schema: dict[str, Any]


SANDBOX_EXEC: Final = FixedTool(
    "exec",
    "Run a shell command in the sandbox. Files in /workspace and background processes stay"
    " between calls. Returns the exit code and what the command wrote.",
    {
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "minLength": 1,
                "maxLength": 65_536,
                "description": "The command line, for the shell.",
            },
            "timeout_seconds": {
                "type": "integer",
                "minimum": 1,
                "maximum": limits.SANDBOX_EXEC_TIMEOUT_SECONDS_MAX,
                "description": "Kill the command after so many seconds;"
                f" {limits.SANDBOX_EXEC_TIMEOUT_SECONDS} when absent.",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    },
)

SKILL_READ: Final = FixedTool(
    "read",
    "Read a file of the skill. Without `path`, list the skill's files.",
    {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "maxLength": 1024,
                "description": "Path of the file as the listing shows it, e.g. `SKILL.md`.",
            }
        },
        "additionalProperties": False,
    },
)

ASK_USER_ASK: Final = FixedTool(
    "ask",
    "Put a question to the person as a form of flat fields. The person answers, declines, or"
    " cancels.",
    {
        "type": "object",
        "properties": {
            "message": {"type": "string", "minLength": 1, "maxLength": 4096},
            "schema": {
                "type": "object",
                "description": "JSON Schema of the answer: an object of string, number, integer,"
                " boolean or enumerated fields.",
            },
        },
        "required": ["message", "schema"],
        "additionalProperties": False,
    },
)

SESSION_NAME: Final = FixedTool(
    "name",
    "Give the session a short name that people will see.",
    {
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "minLength": 1,
                "maxLength": limits.SESSION_NAME_CHARACTERS,
            }
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)

SANDBOX_TOOLS: Final = (SANDBOX_EXEC,)
SKILL_TOOLS: Final = (SKILL_READ,)
BUILTIN_TOOLS: Final = {"ask_user": (ASK_USER_ASK,), "session": (SESSION_NAME,)}
