"""The system prompt: a literal as it is, or a template rendered now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from subako_ray.compiler.check_credentials import check_text
from subako_ray.compiler.compilation import Compilation, NamedPath
from subako_ray.compiler.folder import FolderError
from subako_ray.compiler.refusals import refused
from subako_ray.compiler.tree import Mapping, Node, Scalar, string, to_data


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPrompt:
    """The text of the system prompt; None when the manifest has none."""

    text: str | None


def load_prompt(compilation: Compilation, node: Node | None) -> LoadedPrompt | None:
    """Makes the prompt; None when something is wrong, which is then noted."""
    match node:
        case None | Scalar(value=None):
            return LoadedPrompt(text=None)
        case Scalar(value=str(text)):
            return LoadedPrompt(text=text)
        case Mapping():
            return _render(compilation, node)
        case _:
            return None


def _render(compilation: Compilation, node: Mapping) -> LoadedPrompt | None:
    path, variables = node.get("template"), node.get("variables")
    written = string(path)
    if path is None or written is None:
        return None
    try:
        named = NamedPath(compilation.resolve(written), path.span)
    except FolderError as error:
        compilation.add(refused(error, path.span))
        return None
    values: dict[str, Any] = to_data(variables) if isinstance(variables, Mapping) else {}
    # Jinja takes a tenth of a second to import; a manifest without a template does without.
    from subako_ray.compiler.template import TemplateProblemError, render

    try:
        text = render(compilation, named, values)
    except TemplateProblemError as error:
        compilation.add(error.diagnostic)
        return None
    compilation.add(*check_text(text, path.span, "the rendered prompt"))
    return LoadedPrompt(text=text)
