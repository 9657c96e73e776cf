#!/bin/sh
# Writes requirements.txt: every package of pyproject.toml and its extras, pinned, with the hashes
# that the public registry publishes. Run by `make lock`; arguments go to uv (`--upgrade`).
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
cd "$root"

python=.venv/bin/python
if ! "$python" -m uv --version >/dev/null 2>&1; then
  echo "lock: installing uv into .venv (only the lock needs it)"
  "$python" -m pip install --quiet --disable-pip-version-check uv
fi

# uv keeps the versions that its output file already names, so it works on a copy: a resolution
# that fails leaves the lock as it was.
new=$(mktemp)
trap 'rm -f "$new"' EXIT
if [ -f requirements.txt ]; then cat requirements.txt >"$new"; fi

echo "lock: resolving for Python 3.11 and newer"
# An index or a folder of wheels that this machine is set to use must not decide what is locked.
env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS \
  "$python" -m uv pip compile pyproject.toml --extra cluster --extra dev \
  --no-config --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-header --no-progress --quiet \
  --output-file "$new" "$@"

{
  echo "# Every package the project uses, pinned, for Python 3.11 and newer. Written by \`make lock\`."
  echo "# The hashes are the public registry's; where the files come from is a setting of pip's."
  cat "$new"
} >requirements.txt
echo "lock: requirements.txt pins $(grep -c '^[a-z].*==' requirements.txt) packages"
