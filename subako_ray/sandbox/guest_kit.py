"""The guest kit as a jail sees it: the kit itself and its byte code, compiled before any call.

Without its byte code the kit would be compiled anew in every jail, which costs more than all else
it does. Only this file of our own is ever compiled here.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import py_compile
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from subako_ray.sandbox.spec import BindMount, FileMount, Mount

KIT_TARGET: Final = "/opt/subako"
KIT_SOURCE: Final = Path(__file__).parent / "guest" / "subako_function.py"

_COMPILED_NAME: Final = f"__pycache__/{KIT_SOURCE.stem}.{sys.implementation.cache_tag}.pyc"
_UNCHECKED_HASH: Final = 0b01
"""PEP 552: byte code with a hash of its source which the interpreter does not check."""
_READABLE_FOLDER: Final = 0o005
_READABLE_FILE: Final = 0o004


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestKit:
    """What a program of a function package finds besides its own folder."""

    mounts: tuple[Mount, ...]
    environment: tuple[tuple[str, str], ...]

    @classmethod
    def load(cls) -> GuestKit:
        """Makes the installed kit ready for jails.

        The installed folder is mounted as it is where that works. Where its byte code can neither
        be found nor written, or where jails may not read it, the files travel with every jail
        instead, which costs a few milliseconds of each.
        """
        mounts: tuple[Mount, ...] = kit_files()
        if _is_ready(KIT_SOURCE):
            mounts = (BindMount(source=KIT_SOURCE.parent, target=KIT_TARGET),)
        return cls(
            mounts=mounts,
            environment=(
                ("PYTHONPATH", KIT_TARGET),
                # The folders are read-only: trying to write byte code is wasted time.
                ("PYTHONDONTWRITEBYTECODE", "1"),
                # Tells the kit to take the wire before the package prints anything.
                ("SUBAKO_FUNCTION", "1"),
            ),
        )


def kit_files() -> tuple[FileMount, FileMount]:
    """Reads the kit and compiles it.

    The byte code fits the interpreter that runs this, which is also the jail's; any other
    interpreter looks for another file name and compiles the source.
    """
    source = KIT_SOURCE.read_bytes()
    target = f"{KIT_TARGET}/{KIT_SOURCE.name}"
    code = compile(source, target, "exec", dont_inherit=True, optimize=0)
    compiled = (
        importlib.util.MAGIC_NUMBER
        + _UNCHECKED_HASH.to_bytes(4, "little")
        + importlib.util.source_hash(source)
        + marshal.dumps(code)
    )
    return (
        FileMount(target=target, content=source),
        FileMount(target=f"{KIT_TARGET}/{_COMPILED_NAME}", content=compiled),
    )


def _is_ready(source: Path) -> bool:
    """Sees to the byte code beside the source, and says whether jails can use both."""
    compiled = source.parent / _COMPILED_NAME
    try:
        if not _is_current(compiled, source):
            py_compile.compile(os.fspath(source), os.fspath(compiled), doraise=True)
        return all(
            path.stat().st_mode & bits == bits
            for path, bits in (
                (source.parent, _READABLE_FOLDER),
                (compiled.parent, _READABLE_FOLDER),
                (source, _READABLE_FILE),
                (compiled, _READABLE_FILE),
            )
        )
    except (OSError, py_compile.PyCompileError):
        return False


def _is_current(compiled: Path, source: Path) -> bool:
    """Says whether an interpreter would take the byte code (PEP 552, the form with a time)."""
    try:
        with compiled.open("rb") as file:
            header = file.read(16)
    except FileNotFoundError:
        return False
    status = source.stat()
    stamp = (int(status.st_mtime) & 0xFFFF_FFFF, status.st_size & 0xFFFF_FFFF)
    return header == importlib.util.MAGIC_NUMBER + bytes(4) + b"".join(
        number.to_bytes(4, "little") for number in stamp
    )
