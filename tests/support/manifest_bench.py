"""Manifests for tests: written to a folder, compiled, asked for their rules."""

from __future__ import annotations

from pathlib import Path

from subako_ray.compiler import CompiledVersion, FolderError, Report, compile_version
from subako_ray.compiler.render import render
from subako_ray.schema.bundle import BundleFile

MODEL = "model: {format: anthropic, model: claude-sonnet-5, max_tokens: 8192}\n"
SKILL = "---\nname: notes\ndescription: Notes.\n---\nText\n"
PACKAGE = (
    '{"abi": "subako.function/1", "name": "anydoc", "description": "", "command": ["python3", "a"],'
    ' "tools": [{"name": "convert", "input_schema": {"type": "object"}}]}'
)


class View:
    """A folder that holds one manifest, in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, path: str, limit: int) -> bytes:
        if len(self._data) > limit:
            raise FolderError("too_large", path)
        return self._data

    def files(self, path: str, limits: object) -> list[BundleFile]:
        raise AssertionError(path)


def compiled(folder: Path, manifest: str | bytes, name: str = "version.yaml") -> CompiledVersion:
    outcome = compile_text(folder, manifest, name)
    assert isinstance(outcome, CompiledVersion), render(outcome, "full")
    return outcome


def refused(folder: Path, manifest: str | bytes, name: str = "version.yaml") -> Report:
    outcome = compile_text(folder, manifest, name)
    assert isinstance(outcome, Report)
    assert outcome.diagnostics
    return outcome


def compile_text(
    folder: Path, manifest: str | bytes, name: str = "version.yaml"
) -> CompiledVersion | Report:
    path = folder / name
    path.write_bytes(manifest if isinstance(manifest, bytes) else manifest.encode())
    return compile_version(path)


def lines(report: Report) -> list[str]:
    """`rule@line` of each diagnostic."""
    return [
        f"{one.rule}@{report.sources[one.primary.span.path].position(one.primary.span.start).line}"
        for one in report.diagnostics
    ]
