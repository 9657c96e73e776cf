"""The rules: every kind of problem has one slug, which is also its heading in docs/errors.md."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Rule: TypeAlias = Literal[
    "anchor-not-allowed",
    "credential-in-manifest",
    "duplicate-grant-name",
    "duplicate-key",
    "duplicate-tool",
    "file-not-found",
    "invalid-grant-name",
    "invalid-package",
    "invalid-skill",
    "invalid-syntax",
    "invalid-url",
    "invalid-value",
    "missing-key",
    "path-outside-root",
    "reserved-grant-name",
    "several-documents",
    "tag-not-allowed",
    "template-error",
    "too-deep",
    "too-large",
    "unknown-key",
    "unknown-tool",
]

RULES: tuple[Rule, ...] = get_args(Rule)
