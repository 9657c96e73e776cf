"""What to say when a path that a manifest or template names cannot be read."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from subako_ray.compiler.compilation import NamedPath
from subako_ray.compiler.diagnostic import Diagnostic, problem
from subako_ray.compiler.folder import FolderError
from subako_ray.compiler.rules import Rule
from subako_ray.compiler.source import Span
from subako_ray.compiler.wording import quoted
from subako_ray.schema import limits


class _Words(NamedTuple):
    rule: Rule
    message: str
    help_text: str | None


def refused(error: FolderError, place: Span) -> Diagnostic:
    """Makes the diagnostic of a path that cannot be read, at the place that names it."""
    words = _words(error)
    return problem(words.rule, words.message, place, help=words.help_text)


def refused_inside(error: FolderError, place: Span, rule: Rule, whose: str) -> Diagnostic:
    """Makes the diagnostic of a file within a folder that is to be packed.

    Args:
        error: why the file cannot be packed.
        place: what names the folder.
        rule: the rule of such folders.
        whose: what the folder is: "the skill".
    """
    words = _words(error)
    if error.refusal == "too_large":
        message = (
            f"{whose} has more than {limits.BUNDLE_FILES} files or {limits.BUNDLE_BYTES} bytes"
        )
        return problem(rule, message, place, help="move out what a session does not need")
    return problem(rule, f"in {whose}, {words.message}", place, help=words.help_text)


def _words(error: FolderError) -> _Words:
    path = quoted(error.path)
    match error.refusal:
        case "missing":
            return _Words("file-not-found", f"{path} does not exist", None)
        case "outside":
            return _Words(
                "path-outside-root",
                f"{path} leads out of the folder that may be read",
                "keep files below the manifest's folder, or name a folder above it with --root",
            )
        case "link":
            return _Words(
                "path-outside-root",
                f"{path} is a link, and links are not followed",
                "put the file itself there",
            )
        case "not_a_file":
            return _Words("file-not-found", f"{path} is not a regular file", None)
        case "not_a_folder":
            return _Words("file-not-found", f"{path} is not a folder", None)
        case "too_large":
            return _Words("too-large", f"{path} is larger than {limits.MANIFEST_BYTES} bytes", None)
        case _:
            assert_never(error.refusal)


def refused_folder(error: FolderError, named: NamedPath, rule: Rule, what: str) -> Diagnostic:
    """Makes the diagnostic of a granted folder that cannot be read as a whole.

    Args:
        error: why.
        named: the folder, and where the manifest names it.
        rule: of what is wrong inside the folder.
        what: the folder in a message, such as `the skill`.
    """
    # The folder itself, or what is on the way to it, has the whole path below the root.
    if named.path == error.path or named.path.startswith(f"{error.path}/"):
        return refused(error, named.place)
    return refused_inside(error, named.place, rule, what)
