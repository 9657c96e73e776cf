"""Whether a text holds a credential. A version never does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from subako_ray.compiler.credential_shapes import SECRET_KEYS, Shape, shapes, url_secret
from subako_ray.compiler.diagnostic import Diagnostic, problem
from subako_ray.compiler.source import Source, Span, merged, overlapping
from subako_ray.compiler.tree import Mapping, Node, Scalar, Sequence, walk

_HELP = (
    "remove it and revoke it, it may have been seen; then store the new one with `subako vault add`"
)


class Found(NamedTuple):
    """Credentials of one text: what to say, and every place that must not be shown."""

    diagnostics: tuple[Diagnostic, ...]
    secrets: tuple[Span, ...]


def check_credentials(source: Source, tree: Node | None) -> Found:
    """Looks through keys and values, and through what is neither, such as comments.

    Without a tree (the text cannot be parsed) the raw text is all there is to look at.
    """
    claims = list(_claims(tree)) if tree is not None else []
    # A value that only shows its credential when decoded is hidden as a whole.
    secrets = [c.secret for c in claims if c.whole or not source.hidden(c.secret)]
    claimed = merged(claim.secret for claim in claims)
    whole = merged(claim.secret for claim in claims if claim.whole)
    diagnostics = {
        claim.place: _diagnostic(claim.message, claim.place)
        for claim in claims
        # What a forbidden key holds is one mistake with the key.
        if not overlapping(whole, claim.place)
    }
    for shape in shapes(source.text):
        span = source.span(shape.start, shape.end)
        if not overlapping(claimed, span):
            diagnostics[span] = _diagnostic(_looks_like(shape), span)
    return Found(tuple(diagnostics.values()), tuple(secrets))


def check_text(text: str, place: Span, whose: str) -> Iterator[Diagnostic]:
    """Yields a diagnostic when a text that was made of others holds a credential.

    Args:
        text: the text.
        place: what the diagnostic points at.
        whose: what the text is: "the rendered prompt".
    """
    found: Shape | None = next(shapes(text), None)
    if found is not None:
        message = f"{whose} holds what looks like {found.what}"
        yield problem("credential-in-manifest", message, place, help=_HELP)


class _Claim(NamedTuple):
    """A key or value that is a credential or holds one."""

    message: str
    place: Span
    secret: Span
    whole: bool


def _claims(tree: Node) -> Iterator[_Claim]:
    for node in walk(tree):
        match node:
            case Mapping():
                for entry in node.entries:
                    shape = next(shapes(entry.name), None)
                    if shape is not None:
                        yield _Claim(_looks_like(shape), entry.key, entry.key, whole=False)
                    elif entry.name.lower() in SECRET_KEYS:
                        message = f"an `{entry.name.lower()}` key cannot stand here"
                        yield _Claim(message, entry.key, entry.value.span, whole=True)
            case Scalar(value=str(value), span=span):
                shape = next(shapes(value), None)
                problem_found = url_secret(value) if shape is None else _looks_like(shape)
                if problem_found is not None:
                    yield _Claim(problem_found, span, span, whole=False)
            case Scalar() | Sequence():
                pass


def _looks_like(shape: Shape) -> str:
    return f"this looks like {shape.what}"


def _diagnostic(message: str, place: Span) -> Diagnostic:
    return problem("credential-in-manifest", message, place, help=_HELP)
