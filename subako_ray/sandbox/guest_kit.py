"""The guest kit as files of a jail: the kit itself and its byte code, compiled once per runner.

Without its byte code the kit would be compiled anew in every jail, which costs more than all else
it does. The byte code is made here, of our own file only, and is mounted beside the source, so the
installed package need not be writable and nothing depends on a file's time.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from subako_ray.sandbox.spec import FileMount

KIT_TARGET: Final = "/opt/subako"
KIT_MODULE: Final = "subako_function"
UNCHECKED_HASH: Final = 0b01
"""PEP 552: byte code with a hash of its source which the interpreter does not check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestKit:
    """What a program of a function package finds besides its own folder."""

    mounts: tuple[FileMount, ...]
    environment: tuple[tuple[str, str], ...]

    @classmethod
    def load(cls) -> GuestKit:
        """Reads and compiles the installed kit.

        The byte code fits the interpreter that runs this, which is also the jail's; any other
        interpreter looks for another file name and compiles the source.
        """
        source = (Path(__file__).parent / "guest" / f"{KIT_MODULE}.py").read_bytes()
        target = f"{KIT_TARGET}/{KIT_MODULE}.py"
        code = compile(source, target, "exec", dont_inherit=True, optimize=0)
        compiled = (
            importlib.util.MAGIC_NUMBER
            + UNCHECKED_HASH.to_bytes(4, "little")
            + importlib.util.source_hash(source)
            + marshal.dumps(code)
        )
        cached = f"{KIT_TARGET}/__pycache__/{KIT_MODULE}.{sys.implementation.cache_tag}.pyc"
        return cls(
            mounts=(
                FileMount(target=target, content=source),
                FileMount(target=cached, content=compiled),
            ),
            environment=(
                ("PYTHONPATH", KIT_TARGET),
                # The folders are read-only: trying to write byte code is wasted time.
                ("PYTHONDONTWRITEBYTECODE", "1"),
                # Tells the kit to take the wire before the package prints anything.
                ("SUBAKO_FUNCTION", "1"),
            ),
        )
