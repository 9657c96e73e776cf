"""The compiler: a version manifest and the files it names, to a tool plan or diagnostics."""

from __future__ import annotations

from subako_ray.compiler.compile import CompiledVersion, compile_manifest, compile_version
from subako_ray.compiler.diagnostic import FORMATS, Diagnostic, Format, Label, Report
from subako_ray.compiler.folder import Folder, FolderError, RootFolder

__all__ = [
    "FORMATS",
    "CompiledVersion",
    "Diagnostic",
    "Folder",
    "FolderError",
    "Format",
    "Label",
    "Report",
    "RootFolder",
    "compile_manifest",
    "compile_version",
]
