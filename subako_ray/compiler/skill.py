"""Skills by path: a folder with `SKILL.md`, packed as a bundle."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from subako_ray.compiler.check_shape import check_shape
from subako_ray.compiler.compilation import Compilation, NamedPath
from subako_ray.compiler.diagnostic import Label, problem
from subako_ray.compiler.folder import FolderError, Limits
from subako_ray.compiler.read_text import decode, parse_yaml
from subako_ray.compiler.refusals import refused_folder
from subako_ray.compiler.source import Source
from subako_ray.schema import limits
from subako_ray.schema.bundle import Bundle, BundleError, BundleFile, pack
from subako_ray.schema.skill import SKILL_FILE, SkillHead

_OPENING = re.compile(r"---[ \t]*(?:\r\n|\n|\r)")
_CLOSING = re.compile(r"^---[ \t]*$", re.MULTILINE)
_SHAPE_RULES: Final = frozenset({"unknown-key", "missing-key", "invalid-value"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSkill:
    """A skill that was read and packed."""

    bundle: Bundle
    files: tuple[str, ...]
    description: str


def load_skill(compilation: Compilation, named: NamedPath) -> LoadedSkill | None:
    """Reads, checks and packs a skill; None when something is wrong, which is then noted."""
    try:
        files = compilation.folder.files(
            named.path, Limits(files=limits.BUNDLE_FILES, bytes=limits.BUNDLE_BYTES)
        )
    except FolderError as error:
        compilation.add(refused_folder(error, named, "invalid-skill", "the skill"))
        return None
    main = next((file for file in files if file.path == SKILL_FILE), None)
    if main is None:
        message = f"the skill's folder has no `{SKILL_FILE}`"
        compilation.add(problem("invalid-skill", message, named.place, help=f"add `{SKILL_FILE}`"))
        return None
    head = _read_head(compilation, named, main)
    try:
        bundle = pack(files)
    except BundleError as error:
        compilation.add(problem("invalid-skill", f"in the skill, {error}", named.place))
        return None
    if head is None:
        return None
    return LoadedSkill(
        bundle=bundle,
        files=tuple(sorted(file.path for file in files)),
        description=head.description,
    )


def _read_head(compilation: Compilation, named: NamedPath, file: BundleFile) -> SkillHead | None:
    path = f"{named.path}/{file.path}" if named.path else file.path
    source, unreadable = decode(path, file.data)
    granted = Label(span=named.place, text="granted here")
    if unreadable is not None:
        compilation.add_source(source)
        compilation.add(replace(unreadable, secondary=(granted,)))
        return None
    opening = _OPENING.match(source.text)
    closing = _CLOSING.search(source.text, opening.end()) if opening else None
    if opening is None or closing is None:
        compilation.add_source(source)
        compilation.add(
            problem(
                "invalid-skill",
                "the file does not begin with `---`"
                if opening is None
                else "the file's head has no closing `---`",
                source.line_span(1),
                secondary=(granted,),
                help="begin it with a head between two lines `---` that has `name` and"
                " `description`",
            )
        )
        return None
    # The opening `---` is YAML too, so places in the head are places in the file.
    parsed = parse_yaml(Source(path=path, text=source.text[: closing.start()]))
    compilation.add_source(source, parsed.tree)
    compilation.add(
        *(replace(one, secondary=(*one.secondary, granted)) for one in parsed.diagnostics)
    )
    if parsed.tree is None:
        return None
    checked = check_shape(SkillHead, parsed.tree, "the file's head")
    compilation.add(
        *(replace(one, rule="invalid-skill", secondary=(granted,)) for one in checked.diagnostics)
    )
    return checked.value if not parsed.diagnostics else None
