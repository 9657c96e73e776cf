"""What is known while a version is compiled: where files are, what was read, what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from subako_ray.compiler.check_credentials import check_credentials
from subako_ray.compiler.diagnostic import Diagnostic, Report, report_of
from subako_ray.compiler.folder import Folder, below
from subako_ray.compiler.source import Source, Span
from subako_ray.compiler.tree import Node


class NamedPath(NamedTuple):
    """A path of the manifest: as resolved below the root, and the place that names it."""

    path: str
    place: Span


@dataclass(slots=True, kw_only=True)
class Compilation:
    """One run of the compiler. Grows while it runs, and is then made a report or a result.

    `base` is the manifest's folder below the root.
    """

    folder: Folder
    base: str
    sources: dict[str, Source] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def resolve(self, path: str) -> str:
        """Returns a path of the manifest as a path below the root.

        Raises:
            FolderError: it leads out of the root.
        """
        return below(self.base, path)

    def add_source(self, source: Source, tree: Node | None = None) -> None:
        """Keeps a source for showing places in it, and looks for credentials in it."""
        found = check_credentials(source, tree)
        self.sources[source.path] = source.hiding(found.secrets)
        self.diagnostics.extend(found.diagnostics)

    def add(self, *diagnostics: Diagnostic) -> None:
        """Notes what is wrong."""
        self.diagnostics.extend(diagnostics)

    def report(self) -> Report:
        """Returns everything that is wrong, one message for each mistake."""
        credentials = {
            one.primary.span for one in self.diagnostics if one.rule == "credential-in-manifest"
        }
        bad_keys = {one.primary.span for one in self.diagnostics if one.rule == "invalid-value"}

        def says_more(one: Diagnostic) -> bool:
            place = one.primary.span
            # A key that is no string is not unknown besides.
            if one.rule == "unknown-key" and place in bad_keys:
                return False
            return one.rule == "credential-in-manifest" or place not in credentials

        return report_of([one for one in self.diagnostics if says_more(one)], self.sources)
