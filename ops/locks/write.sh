#!/bin/sh
# Writes run.txt, dev.txt, api.txt, worker.txt and uv.txt: the versions of constraints.txt with the hashes of every file that
# the index has of them, for Linux and macOS and every Python from 3.11 on. uv, since pip resolves for one platform
# alone.
set -eu
cd "$(dirname "$0")/../.."
python=$1
tool=build/uv
[ -x $tool/bin/uv ] || "$python" -m pip install --quiet --disable-pip-version-check --require-hashes --target $tool \
    -r ops/locks/uv.txt

lock() {
    file=$1
    shift
    {
        echo "# Written by \`make lock\`; installed by ops/environment.sh."
        echo "setuptools>=77" | $tool/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
            --no-header --no-annotate --constraints constraints.txt --no-emit-package uv "$@" pyproject.toml -
    } > "$file.draft"
    mv "$file.draft" "$file"
}

lock ops/locks/run.txt --extra api --extra worker --extra embedded
lock ops/locks/dev.txt --extra api --extra worker --extra embedded --extra dev
# What the container images install (ops/images/Dockerfile).
lock ops/locks/api.txt --extra api
lock ops/locks/worker.txt --extra worker

# What installs them.
{
    echo "# Written by \`make lock\`."
    echo uv | $tool/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -
} > ops/locks/uv.txt.draft
mv ops/locks/uv.txt.draft ops/locks/uv.txt
