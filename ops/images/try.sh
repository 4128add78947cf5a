#!/bin/sh
# Tries the images and the stack without containers, in clean Debian roots (debootstrap). Needs root and Debian.
#
#   ops/images/try.sh api|worker      # the steps of ops/images/Dockerfile for that target, as they stand there
#   ops/images/try.sh stack           # both, then docker-compose.yml: its commands, environment, secrets, users and
#                                     # health checks, in a network of their own; a sample goes through
#
# TRY_FOLDER (2 GiB, /var/tmp/spool-try) keeps the roots, and TRY_AGAIN=1 starts the stack in them as they are; PYTHON is the development environment's (.venv/bin/python).
# What stands in: Debian's own Python 3.13 for the image python:3.13-slim, its PostgreSQL and Valkey for theirs,
# OpenStack Swift for the S3 server. Grafana is not in Debian and is left out.
set -eu
cd "$(dirname "$0")/../.."
folder=${TRY_FOLDER:-/var/tmp/spool-try}
python=${PYTHON:-$PWD/.venv/bin/python}
suite=trixie
case "${1:-}" in api | worker | stack) ;; *) sed -n 2,12p "$0"; exit 2 ;; esac

# Mounts of our own: they are gone when this ends, however it ends.
if [ -z "${TRY_INSIDE:-}" ]; then
    command -v debootstrap >/dev/null || { echo "apt-get install debootstrap, then again" >&2; exit 1; }
    TRY_INSIDE=1 exec unshare --mount --propagation private "$0" "$@"
fi
mkdir -p "$folder"

# What stands for python:3.13-slim-trixie: Debian, with `python` and `pip` under /usr/local.
base() {
    [ -e "$folder/base/.complete" ] && return
    rm -rf "$folder/base"
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv "$suite" "$folder/base"
    cp -L /etc/ssl/certs/ca-certificates.crt "$folder/base/etc/ssl/certs/"
    chroot "$folder/base" python3 -m venv /usr/local
    touch "$folder/base/.complete"
}

fresh() {
    rm -rf --one-file-system "${folder:?}/$1"
    cp -a "$folder/$2" "$folder/$1"
}

# The kernel's folders; the network's names as here.
mounted() {
    mount --bind "$folder/$1" "$folder/$1"
    mount -t proc proc "$folder/$1/proc"
    mount --rbind /dev "$folder/$1/dev"
    cp -L /etc/resolv.conf "$folder/$1/etc/"
}

build() {
    fresh "$1" base
    mounted "$1"
    python3 ops/images/dockerfile.py ops/images/Dockerfile "$1" "$folder/$1"
    echo "$1: every step of ops/images/Dockerfile ran; $(du -sh -x "$folder/$1" | cut -f1)"
}

base
if [ "$1" != stack ]; then
    build "$1"
    exit
fi
for target in api worker; do
    if [ -n "${TRY_AGAIN:-}" ]; then mounted $target; else build $target; fi
done
[ -e "$folder/packages/.with-alertmanager" ] || {
    fresh packages base
    mounted packages
    chroot "$folder/packages" sh -euc '
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends postgresql valkey-server prometheus prometheus-alertmanager wget >/dev/null'
    umount -R "$folder/packages"
    touch "$folder/packages/.with-alertmanager"
}
fresh servers packages
mounted servers
[ -x "$folder/swift/bin/swift-proxy-server" ] || {
    python3 -m venv "$folder/swift"
    "$folder/swift/bin/pip" install --quiet --disable-pip-version-check swift 'setuptools<81'
}
exec unshare --net --pid --fork --kill-child "$python" -m ops.images.try_stack "$folder"
