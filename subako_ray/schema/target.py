"""What a credential is for: the exact URL of an MCP server, or an HTTP origin, in normal form.

One normalisation, written once: scheme and host lower-cased, the scheme's default port dropped,
nothing else. Two targets match when their normal forms are equal; there is no prefix, no pattern
and no decoding. What an HTTP client would rewrite on its own before sending (blanks, dot
segments, hosts that are not ASCII, stray `%`) is refused, so that what was matched is what is
asked. Standard library only. No message repeats the text it is about, which may hold a secret.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

TARGET_CHARACTERS: Final = 2048
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_PORT_MAX: Final = 65_535
# `[` and `]` are not RFC 3986 characters of a query, but queries hold them unencoded everywhere.
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?P<authority>[^/?]*)"
    r"(?P<path>/[A-Za-z0-9._~!$&'()*+,;=:@/%-]*)?"
    r"(?:\?(?P<query>[A-Za-z0-9._~!$&'()*+,;=:@/?%\[\]-]*))?"
)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^\[\]:]*)(?P<port>:.*)?")
_LABELS = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_DOT_SEGMENT = re.compile(r"/(?:\.|%2[Ee]){1,2}(?:/|\Z)")


class TargetError(Exception):
    """A text is not a target; `message` says why in one line, without repeating the text."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Scheme, host and port of HTTP requests, in normal form. Made by `parse`.

    Attributes:
        scheme: `http` or `https`.
        host: lower case; an IPv6 address keeps its brackets.
        port: None for the scheme's default port.
    """

    scheme: str
    host: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Reads an origin such as `https://api.example.com:8443`.

        Raises:
            TargetError: it is not an origin, or goes on after host and port (even with `/`).
        """
        parts = _split(text)
        if parts.path or parts.query is not None:
            raise TargetError("the origin goes on after its host and port")
        return parts.origin

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTarget:
    """The URL of one MCP server, in normal form. Made by `parse`.

    Attributes:
        origin: where requests go.
        path: as written, percent-encoding kept; empty when the URL has none.
        query: as written, without its `?`; None when the URL has none.
    """

    origin: Origin
    path: str
    query: str | None

    @classmethod
    def parse(cls, text: str) -> McpTarget:
        """Reads the URL of an MCP server.

        Raises:
            TargetError: it is not an absolute http or https URL without userinfo and fragment.
        """
        parts = _split(text)
        return cls(origin=parts.origin, path=parts.path, query=parts.query)

    def __str__(self) -> str:
        query = "" if self.query is None else f"?{self.query}"
        return f"{self.origin}{self.path}{query}"


def near_miss(wanted: McpTarget, held: McpTarget) -> str | None:
    """Says in one line how `held` differs from the much like `wanted`; None when it does not.

    Targets are much alike when their hosts are equal, or when nothing but their hosts differs.
    None for equal targets and for unlike ones. A query is never quoted: it may be private.
    """
    one, other = wanted.origin, held.origin
    differences = []
    if one.scheme != other.scheme:
        differences.append(f"scheme: `{other.scheme}`")
    if one.host != other.host:
        differences.append(f"host: `{other.host}`")
    if one.port != other.port:
        port = DEFAULT_PORTS[other.scheme] if other.port is None else other.port
        differences.append(f"port: `{port}`")
    if wanted.path != held.path:
        differences.append(f"path: `{held.path}`" if held.path else "path: it has none")
    if wanted.query != held.query:
        differences.append(
            "query string" if held.query is not None else "query string: it has none"
        )
    alike = one.host == other.host or len(differences) == 1
    return f"differs in its {', its '.join(differences)}" if differences and alike else None


class _Parts(NamedTuple):
    origin: Origin
    path: str
    query: str | None


def _split(text: str) -> _Parts:
    # `urllib.parse.urlsplit` strips blanks and control characters and takes almost any host, so
    # the grammar is ours.
    if not text:
        raise TargetError("the URL is empty")
    if len(text) > TARGET_CHARACTERS:
        raise TargetError(f"the URL has more than {TARGET_CHARACTERS} characters")
    if not text.isascii():
        raise TargetError("the URL has a character that is not ASCII")
    if any(character <= " " or character == "\x7f" for character in text):
        raise TargetError("the URL has a blank or a control character")
    if "\\" in text:
        raise TargetError("the URL has a backslash")
    if "#" in text:
        raise TargetError("the URL has a fragment")
    found = _URL.fullmatch(text)
    if found is None:
        if re.match(r"https?://", text, re.IGNORECASE):
            raise TargetError("the URL has a character that must be percent-encoded")
        raise TargetError("the URL does not begin with `http://` or `https://`")
    scheme = found["scheme"].lower()
    if scheme not in DEFAULT_PORTS:
        raise TargetError("the URL does not begin with `http://` or `https://`")
    path, query = found["path"] or "", found["query"]
    if _STRAY_PERCENT.search(path) or _STRAY_PERCENT.search(query or ""):
        raise TargetError("the URL has a `%` without two hexadecimal digits after it")
    if _DOT_SEGMENT.search(path):
        raise TargetError("the URL has a path segment `.` or `..`")
    return _Parts(_origin(scheme, found["authority"]), path, query)


def _origin(scheme: str, authority: str) -> Origin:
    if "@" in authority:
        raise TargetError("the URL has a user name or a password")
    found = _AUTHORITY.fullmatch(authority)
    if found is None or not _is_host(found["host"]):
        raise TargetError("the URL has no host" if not authority else "the URL has a bad host")
    port = None
    if found["port"] is not None:
        digits = found["port"][1:]
        if not _PORT.fullmatch(digits) or int(digits) > _PORT_MAX:
            raise TargetError("the URL has a bad port")
        port = int(digits)
    if port == DEFAULT_PORTS[scheme]:
        port = None
    return Origin(scheme=scheme, host=found["host"].lower(), port=port)


def _is_host(host: str) -> bool:
    if not host.startswith("["):
        return _LABELS.fullmatch(host) is not None
    address = host[1:-1]
    # `IPv6Address` also takes zones (`%eth0`), which mean nothing to another machine.
    if not _IPV6.fullmatch(address):
        return False
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return True
