"""What credentials look like, in values and in raw text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import unquote_plus

from subako_ray.compiler.source import Source

MASK: Final = "***"

SECRET_PARAMETERS: Final = frozenset(
    {"token", "key", "api_key", "access_token", "secret", "password", "sig"}
)
SECRET_KEYS: Final = frozenset({"authorization"})

# Prefixes that the issuers document. A mention such as "keys begin with sk-ant-" is no key, so each
# asks for some characters after it.
_TOKENS: Final = {
    "anthropic": ("an Anthropic API key", r"sk-ant-[A-Za-z0-9_-]{6,}"),
    "openai": ("an OpenAI API key", r"sk-proj-[A-Za-z0-9_-]{16,}"),
    "github": ("a GitHub token", r"gh[opsur]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}"),
    "gitlab": ("a GitLab token", r"glpat-[A-Za-z0-9_-]{16,}"),
    "slack": ("a Slack token", r"xox[abeoprs]-[A-Za-z0-9-]{8,}"),
    "aws": ("an AWS access key", r"(?:AKIA|ASIA)[A-Z0-9]{16}"),
    "google": ("a Google API key", r"AIza[A-Za-z0-9_-]{30,}"),
    "stripe": ("a Stripe key", r"[rs]k_(?:live|test)_[A-Za-z0-9]{8,}"),
    "subako": ("a Subako token", r"sbk_(?:ak|st)_[A-Za-z0-9_-]{6,}"),
    "jwt": ("a JSON web token", r"eyJ[A-Za-z0-9_-]{6,}\.eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*"),
    "pem": (
        "a private key",
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:(?s:.*?)-----END [A-Z ]{0,40}-----|(?s:.*))",
    ),
    # A digit tells a token from prose such as "bearer authentication-mechanism".
    "bearer": (
        "a bearer token",
        r"[Bb]earer[ \t]+(?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{16,}",
    ),
    "userinfo": ("a password in a URL", r"[a-z]{2,10}://[^\s/?#@:\"']*:[^\s/?#@\"']+@"),
}
_SHAPE = re.compile(
    "|".join(f"(?<![A-Za-z0-9])(?P<{name}>{pattern})" for name, (_, pattern) in _TOKENS.items())
)

_NAMES = "|".join(sorted(SECRET_PARAMETERS))
# Hidden wherever they stand, so that a text that cannot be parsed shows no secret either. These
# hide more than is wrong; whether something is wrong is decided on values.
_HIDDEN = (
    re.compile(r"://([^\s@\"']*)@"),
    re.compile(rf"(?i)[?&;](?:{_NAMES.replace('_', '[_-]')})=([^&;\s\"'#]*)"),
    re.compile(r"(?im)\bauthorization[\"']?\s*:\s*(\S.*)$"),
)


class Shape(NamedTuple):
    """A credential in a text: what it is and where."""

    what: str
    start: int
    end: int


def shapes(text: str) -> Iterator[Shape]:
    """Yields what in the text has the shape of a credential."""
    for found in _SHAPE.finditer(text):
        yield Shape(_TOKENS[str(found.lastgroup)][0], found.start(), found.end())


def url_secret(text: str) -> str | None:
    """Says that a URL holds a user name or a parameter named like a secret; None when not."""
    scheme, separator, rest = text.partition("://")
    if not separator or not scheme.isascii() or not scheme.isalpha():
        return None
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        return "the URL has a user name or a password"
    _, _, query = rest.partition("?")
    for pair in re.split(r"[&;]", query.partition("#")[0]):
        name = unquote_plus(pair.partition("=")[0]).lower().replace("-", "_")
        if name in SECRET_PARAMETERS:
            return f"the URL has a query parameter named `{name}`"
    return None


def hide_known_shapes(source: Source) -> Source:
    """Returns the source with everything hidden that looks like a credential in its raw text."""
    spans = [source.span(shape.start, shape.end) for shape in shapes(source.text)]
    for pattern in _HIDDEN:
        spans += [source.span(*found.span(1)) for found in pattern.finditer(source.text)]
    return source.hiding(tuple(span for span in spans if span.end > span.start))


def masked(text: str) -> str:
    """Returns the text with every credential in it starred."""
    for pattern in _HIDDEN:
        text = pattern.sub(lambda found: found.group().replace(found.group(1) or "\0", MASK), text)
    return _SHAPE.sub(MASK, text)
