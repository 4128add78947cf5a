#!/bin/sh
# Whether every locked file can be installed on a Mac: asks the resolver, for macOS 14 on arm64 and each Python from
# 3.11 to 3.13, for wheels alone and with the hashes of the locks. Downloads no package, needs no Mac.
#
#   ops/locks/mac.sh PYTHON [MACOS]       # MACOS: the oldest system to try, 14.0
set -eu
cd "$(dirname "$0")/../.."
python=$1
macos=${2:-14.0}
tool=build/uv
[ -x $tool/bin/uv ] || "$python" -m pip install --quiet --disable-pip-version-check --require-hashes --target $tool \
    -r ops/locks/uv.txt

# Of all dependencies too: with hashes asked for, one that the lock lacks is an error.
installs() {
    MACOSX_DEPLOYMENT_TARGET=$1 $tool/bin/uv pip install --dry-run --quiet --no-config --require-hashes \
        --only-binary :all: --python-platform aarch64-apple-darwin --python-version "$2" \
        --target build/nowhere -r "$3"
}

for lock in ops/locks/run.txt ops/locks/dev.txt ops/locks/uv.txt; do
    for version in 3.11 3.12 3.13; do
        installs "$macos" $version $lock || {
            echo "macOS $macos on arm64, Python $version: $lock cannot be installed (above)." >&2
            exit 1
        }
    done
done

# The same question with an answer that is known to be no, so that a resolver that lets everything pass is noticed.
if installs 11.0 3.13 ops/locks/run.txt 2>/dev/null; then
    echo "MLX has no wheel for macOS 11, and the resolver says that it has: this check sees nothing any more." >&2
    exit 1
fi
echo "macOS $macos on arm64, Python 3.11 to 3.13: every file of ops/locks has a wheel"
