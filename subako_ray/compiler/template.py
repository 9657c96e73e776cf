"""Rendering a system prompt from a Jinja2 template, sandboxed and the same everywhere.

Templates are read through the compiler's view of the root and never from the file system. What
would differ between two runs (random choices, addresses of objects) is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from jinja2 import BaseLoader, Environment, StrictUndefined
from jinja2.exceptions import SecurityError, TemplateNotFound, TemplateSyntaxError, UndefinedError
from jinja2.sandbox import SandboxedEnvironment

from subako_ray.compiler.compilation import Compilation, NamedPath
from subako_ray.compiler.diagnostic import Diagnostic, Label, problem
from subako_ray.compiler.folder import FolderError
from subako_ray.compiler.read_text import decode
from subako_ray.compiler.refusals import refused
from subako_ray.compiler.source import Span
from subako_ray.compiler.wording import quoted
from subako_ray.schema import limits

_NOT_REPEATABLE_FILTERS: Final = ("random",)
_NOT_REPEATABLE_GLOBALS: Final = ("lipsum",)


class TemplateProblemError(Exception):
    """The template cannot be rendered, as the diagnostic says."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic)
        self.diagnostic = diagnostic


class _RefusedError(Exception):
    """A template that a template names cannot be read.

    Not a `TemplateNotFound`, which `include … ignore missing` would pass over.
    """

    def __init__(self, cause: FolderError | Diagnostic) -> None:
        super().__init__(cause)
        self.cause = cause


class _NotTextError(Exception):
    """A template prints a value that is not text, a number, a list or a mapping."""


class _Undefined(StrictUndefined):
    @property
    def _undefined_message(self) -> str:
        return str(self._undefined_name)


class _Loader(BaseLoader):
    def __init__(self, compilation: Compilation, entry: str) -> None:
        self._compilation = compilation
        self._entry = entry

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        compilation = self._compilation
        try:
            path = template if template == self._entry else compilation.resolve(template)
            data = compilation.folder.read(path, limits.MANIFEST_BYTES)
        except FolderError as error:
            if error.refusal == "missing" and template != self._entry:
                raise TemplateNotFound(template) from None
            raise _RefusedError(error) from None
        source, unreadable = decode(path, data)
        if path not in compilation.sources:
            compilation.add_source(source)
        if unreadable is not None:
            raise _RefusedError(unreadable)
        # The path comes back as the file name in tracebacks.
        return source.text, path, lambda: True


def render(compilation: Compilation, named: NamedPath, variables: dict[str, Any]) -> str:
    """Renders a template.

    Args:
        compilation: reads templates, and keeps their sources.
        named: the template; the templates it names are below the manifest's folder.
        variables: what it may read.

    Raises:
        TemplateProblemError: with a place in the template where that is known.
    """
    environment = SandboxedEnvironment(
        loader=_Loader(compilation, named.path),
        undefined=_Undefined,
        autoescape=False,
        finalize=_plain,
        cache_size=0,
    )
    for name in _NOT_REPEATABLE_FILTERS:
        del environment.filters[name]
    for name in _NOT_REPEATABLE_GLOBALS:
        del environment.globals[name]
    pieces: list[str] = []
    length = 0
    try:
        for piece in environment.get_template(named.path).generate(variables):
            pieces.append(piece)
            length += len(piece)
            if length > limits.SYSTEM_PROMPT_CHARACTERS:
                message = (
                    f"the rendered prompt has more than {limits.SYSTEM_PROMPT_CHARACTERS}"
                    " characters"
                )
                raise TemplateProblemError(problem("template-error", message, named.place))
    except (TemplateProblemError, OSError):
        raise
    except Exception as error:  # noqa: BLE001 - an expression of a template can raise anything
        raise TemplateProblemError(_explain(compilation, named, error)) from None
    return "".join(pieces)


def _plain(value: Any) -> Any:
    """Refuses to print what would show an address or a name of Python's."""
    if isinstance(value, str | int | float | list | dict | tuple | _Undefined) or value is None:
        return value
    raise _NotTextError


def _explain(compilation: Compilation, named: NamedPath, error: Exception) -> Diagnostic:
    place = _place(compilation, error) or named.place
    rendered = Label(span=named.place, text="rendered here")
    secondary = () if place == named.place else (rendered,)
    if isinstance(error, _RefusedError):
        if isinstance(error.cause, FolderError):
            return refused(error.cause, place)
        return error.cause
    message, help_text = _words(error)
    rule = "file-not-found" if isinstance(error, TemplateNotFound) else "template-error"
    if rule == "file-not-found":
        return problem("file-not-found", message, place, secondary=secondary, help=help_text)
    return problem("template-error", message, place, secondary=secondary, help=help_text)


def _words(error: Exception) -> tuple[str, str | None]:
    match error:
        case UndefinedError():
            name = quoted(error.message or "")
            return f"{name} is not defined", f"give {name} a value in `variables`"
        case TemplateNotFound():
            # `include` of a list has a name that joins them.
            return f"the template {quoted(str(error.name))} does not exist", None
        case TemplateSyntaxError():
            return "this is not Jinja2", "close every `{{`, `{%` and `{#`, and end every block"
        case SecurityError():
            return "a template may not use what is behind a value", None
        case _NotTextError():
            return (
                "this prints something that is not text",
                "print strings, numbers, lists or mappings",
            )
        case ZeroDivisionError():
            return "this divides by zero", None
        case OverflowError() | MemoryError():
            return "this makes something too large", None
        case RecursionError():
            return "templates include each other without end", None
        case _:
            return "this cannot be rendered", "check the types of the values and the filters used"


def _place(compilation: Compilation, error: Exception) -> Span | None:
    """The line of a template that the error is about: the innermost that is in the traceback."""
    if isinstance(error, TemplateSyntaxError) and error.filename in compilation.sources:
        return compilation.sources[error.filename].line_span(error.lineno)
    found = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name in compilation.sources:
            found = compilation.sources[name].line_span(trace.tb_lineno)
        trace = trace.tb_next
    return found
