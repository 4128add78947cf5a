#!/bin/sh
# Makes or refreshes the environment: ops/environment.sh FOLDER EXTRAS
# Picks the first Python >= 3.11 it finds (PYTHON overrides). Runs nothing when FOLDER is already up to date.
set -eu
cd "$(dirname "$0")/.."
folder=$1
extras=$2

stamp="$folder/.installed-$extras"
if [ -e "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt constraints.txt ]; then exit 0; fi

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
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$extras]"
touch "$stamp"
