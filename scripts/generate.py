"""Writes every file that is made from code, or with `--check` says which of them is out of date.

python scripts/generate.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from subako_ray.schema.manifest import json_schema

ROOT = Path(__file__).parents[1]


def version_schema() -> str:
    """The JSON Schema of version manifests, for editors and other validators."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


GENERATED: dict[str, Callable[[], str]] = {
    "subako_ray/schema/version.schema.json": version_schema,
}
"""Generated files and what writes them, by path below the checkout."""


def main(argv: Sequence[str] | None = None) -> int:
    """Writes or checks the files; 1 when one is out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when out of date")
    arguments = parser.parse_args(argv)
    stale = []
    for name, make in GENERATED.items():
        path = ROOT / name
        if path.is_file() and path.read_text(encoding="utf-8") == make():
            continue
        stale.append(name)
        if not arguments.check:
            path.write_text(make(), encoding="utf-8")
            print(f"wrote {name}")
    if arguments.check and stale:
        for name in stale:
            print(f"error: {name} is not what the code makes", file=sys.stderr)
        print("  help: run `make accept` and commit the result", file=sys.stderr)
        return 1
    print(f"generated files are current ({len(GENERATED)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
