"""The shop's web page as a client of the session: it offers what only the page can do.

Given to `subako run --client`. The tools run here, in the application's own process.
"""

from typing import Any

from subako_ray.executor.client_tools import Client, ClientToolError

CLIENT = Client("storefront")

NOTICE_CHARACTERS = 200

shown: list[str] = []


@CLIENT.tool(
    description="Show a notice on the page that the customer looks at.",
    parameters={
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 1},
            "tone": {"type": "string", "enum": ["good", "neutral"]},
        },
        "required": ["text"],
        "additionalProperties": False,
    },
)
def show_notice(arguments: dict[str, Any]) -> str:
    """Puts a notice on the page and says how many the customer now sees."""
    text = str(arguments["text"])
    if len(text) > NOTICE_CHARACTERS:
        raise ClientToolError(f"a notice has at most {NOTICE_CHARACTERS} characters")
    shown.append(text)
    return f"the customer sees {len(shown)} notice{'s' if len(shown) > 1 else ''}"


@CLIENT.tool(
    description="Say which page the customer looks at.",
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
)
def current_page(arguments: dict[str, Any]) -> str:
    """Returns the page's path."""
    return "/orders/A-1001"
