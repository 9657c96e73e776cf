"""What `subako run` is given: a version manifest, which is compiled, or a plan and its bundles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from subako_ray.cli.command import CommandError, ExitCode
from subako_ray.cli.compile import BUNDLES_FOLDER, bundle_file, compile_or_print
from subako_ray.schema import limits
from subako_ray.schema.plan import PLAN_FORMAT, Plan, PlanError, load_plan

_PLAN_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """A plan, and the bundles (tar.gz) it needs by digest."""

    plan: Plan
    bundles: Mapping[str, bytes] = field(repr=False)


def read_plan_input(path: Path, root: Path | None) -> PlanInput | None:
    """Reads a plan, or compiles a version; prints what is wrong with a version.

    Returns:
        None when the version has problems, which were printed.

    Raises:
        CommandError: the file cannot be read, or it is a plan that cannot be used.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_PLAN_BYTES + 1)
    except OSError as error:
        raise CommandError(
            f"`{path}` cannot be read: {error.strerror}", code=ExitCode.USAGE
        ) from None
    # Only a plan has its format's name in it; a manifest with these words is none either.
    if data.lstrip().startswith(b"{") and f'"{PLAN_FORMAT}"'.encode() in data:
        return _read_plan(path, data)
    compiled = compile_or_print(path, root)
    if compiled is None:
        return None
    return PlanInput(plan=compiled.plan, bundles=compiled.bundles)


def _read_plan(path: Path, data: bytes) -> PlanInput:
    try:
        plan = load_plan(data)
    except PlanError as error:
        raise CommandError(
            f"the plan `{path}` cannot be used: {error}",
            "compile the version again with `subako compile VERSION -o PLAN`",
            ExitCode.PROBLEMS,
        ) from None
    bundles = {}
    for digest in sorted(plan.bundles()):
        file = path.parent / BUNDLES_FOLDER / bundle_file(digest)
        try:
            size = file.stat().st_size
            bundles[digest] = file.read_bytes() if size <= limits.BUNDLE_BYTES * 2 else b""
        except OSError:
            raise CommandError(
                f"the plan `{path}` needs the bundle `{file}`, which cannot be read",
                "keep the folder of bundles beside the plan, as `subako compile -o` makes it",
                ExitCode.PROBLEMS,
            ) from None
    return PlanInput(plan=plan, bundles=bundles)
