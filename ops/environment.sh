#!/bin/sh
# Makes or refreshes the environment: ops/environment.sh [--unlocked] FOLDER EXTRAS
# Where ops/locks has the extras, every file has to have the hash that is written there. --unlocked takes what the
# index has now, for `make lock`.
# Picks the first Python >= 3.11 it finds (PYTHON overrides). Runs nothing when FOLDER is already up to date.
set -eu
cd "$(dirname "$0")/.."
locked=yes
if [ "$1" = --unlocked ]; then locked=no; shift; fi
folder=$1
extras=$2
lock=
if [ $locked = yes ]; then
    case "$extras" in
        api,worker,embedded) lock=ops/locks/run.txt ;;
        api,worker,embedded,dev) lock=ops/locks/dev.txt ;;
        worker) lock=ops/locks/worker.txt ;;
    esac
fi

stamp="$folder/.installed-$extras"
newest() { [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt constraints.txt ] && { [ -z "$lock" ] || [ "$stamp" -nt "$lock" ]; }; }
if [ $locked = yes ] && [ -e "$stamp" ] && newest; then exit 0; fi

recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if [ ! -x "$folder/bin/python" ]; then
    found=
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 && recent "$candidate" && found=$candidate && break
    done
    if [ -z "$found" ]; then
        echo "Spool needs Python 3.11 or newer: install it (macOS: brew install python@3.13; Debian: apt install python3-venv)." >&2
        exit 1
    fi
    # Debian keeps ensurepip in a package of its own.
    if ! "$found" -c 'import ensurepip' 2>/dev/null; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            apt-get install -y -qq python3-venv >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null; }
        else
            echo "This Python cannot make environments: sudo apt install python3-venv, then try again." >&2
            exit 1
        fi
    fi
    "$found" -m venv "$folder"
fi

echo "Installing Spool ($extras) into $folder ..."
pip() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
uv() {
    [ -x build/uv/bin/uv ] || pip --require-hashes --target build/uv -r ops/locks/uv.txt || return 1
    # Modules are compiled when they are first imported, but a service may not write here.
    if [ "$extras" = worker ]; then set -- --compile-bytecode "$@"; fi
    build/uv/bin/uv pip install --quiet --python "$folder/bin/python" "$@"
}
# uv takes seconds, pip more than a minute; but uv does not read pip's settings, such as a mirror of the index.
install() { uv "$@" || { echo "uv could not install it (see above); pip tries" >&2 && pip "$@"; }; }
if [ -n "$lock" ]; then
    install --require-hashes --no-deps -r "$lock"
    # All of it is there now, the build's own tools too; what the lock lacks would have to be fetched without a hash.
    install --no-deps --no-build-isolation -e ".[$extras]"
    "$folder/bin/python" -m pip check --quiet >/dev/null || {
        "$folder/bin/python" -m pip check --disable-pip-version-check >&2 || true
        echo "ops/locks and pyproject.toml disagree: run make lock." >&2
        exit 1
    }
else
    pip --no-compile -c constraints.txt -e ".[$extras]"
fi
touch "$stamp"
