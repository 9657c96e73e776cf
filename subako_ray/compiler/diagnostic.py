"""A diagnostic: one problem of the user's input, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from subako_ray.compiler.rules import Rule
from subako_ray.compiler.source import Source, Span

Severity: TypeAlias = Literal["error", "warning"]
Format: TypeAlias = Literal["full", "concise", "json"]
"""How a report is written; each has a file in `compiler.render`."""

FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A place and what there is to say about it."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """Replacing the text at `span` by `replacement` settles the problem for sure."""

    span: Span
    replacement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One problem.

    Attributes:
        message: what is wrong: one line, lower case, understandable alone.
        primary: where.
        secondary: other places that matter, such as the first of two equal keys.
        notes: facts that explain.
        help: what to do.
    """

    rule: Rule
    message: str
    primary: Label
    secondary: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None
    fix: Fix | None = None
    severity: Severity = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What compiling found wrong, with the sources that the places are in (by path).

    `shown_root` is the folder of all sources as the user named it, which their paths are shown
    below: so a place that is printed can be opened from where the user is.
    """

    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, Source]
    shown_root: str = ""


def report_of(diagnostics: list[Diagnostic], sources: Mapping[str, Source]) -> Report:
    """Makes a report: in the order of the sources, then by place, each thing said once."""
    rank = {path: number for number, path in enumerate(sources)}
    unique = {
        (rank[one.primary.span.path], one.primary.span, one.rule, one.message): one
        for one in diagnostics
    }
    return Report(diagnostics=tuple(unique[key] for key in sorted(unique)), sources=dict(sources))


def problem(
    rule: Rule,
    message: str,
    span: Span,
    label: str = "",
    *,
    secondary: tuple[Label, ...] = (),
    notes: tuple[str, ...] = (),
    help: str | None = None,  # noqa: A002 - the word every output uses
    fix: Fix | None = None,
) -> Diagnostic:
    """Makes an error of its parts."""
    return Diagnostic(
        rule=rule,
        message=message,
        primary=Label(span=span, text=label),
        secondary=secondary,
        notes=notes,
        help=help,
        fix=fix,
    )
