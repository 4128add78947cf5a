#!/bin/sh
# A worker on a Mac, as a service that starts with the machine.
#
#   sudo ops/mac/install.sh install --settings FILE [--model NAME=OWNER/REPO[@REVISION] --sha256 HEX]
#   sudo ops/mac/install.sh upgrade          # from this checkout: drains first, goes back if the new one fails
#   sudo ops/mac/install.sh uninstall [--purge]
#        ops/mac/install.sh status
#
#   --settings FILE   lines of SPOOL_…=value: database, broker, object store (ops/images/secrets.sh --for-a-mac HOST)
#   --model, --sha256 weights from the hub, kept here; nothing with another hash is used. Without: as SPOOL_MODELS says
#   --user NAME       who the worker runs as (you, not root)
#   --environment DIR an environment that is there already, instead of one made from ops/locks
#   --dry-run         say what would be done, do nothing
#
# Everything lies under /usr/local/spool: releases/ and `current`, etc/worker.env, models/, var/, log/.
set -eu
# The worker, another user than root, reads what this writes.
umask 022
source=$(cd "$(dirname "$0")/../.." && pwd -P)
root=${SPOOL_INSTALL_ROOT:-} # of the file system, for tests
app=$root/usr/local/spool
label=org.spool.worker
plist=$root/Library/LaunchDaemons/$label.plist
rotation=$root/etc/newsyslog.d/spool.conf
READY_SECONDS=${SPOOL_READY_SECONDS:-300}
KEPT_RELEASES=2

dry='' settings='' model='' sha256='' environment='' python='' purge=''
user=${SUDO_USER:-$(id -un)}

say() { printf '%s\n' "$*"; }
fail() { say "install.sh: $*" >&2; exit 1; }
usage() { sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2; }
# What changes anything goes through here.
run() { if [ -n "$dry" ]; then say "would run: $*"; else "$@"; fi; }
as_user() { if [ "$(id -un)" = "$user" ]; then "$@"; else sudo -u "$user" "$@"; fi; }
worker() { as_user env SPOOL_APP="$app" /bin/sh "$app/current/ops/mac/worker.sh" "$@"; }
loaded() { launchctl print "system/$label" > /dev/null 2>&1; }

check_mac() {
    [ "$(uname -s)" = Darwin ] || fail "this script is for macOS; on Linux use docker-compose.yml with the profile cpu"
    [ "$(uname -m)" = arm64 ] || fail "Apple silicon is required (this is $(uname -m)); in a terminal under Rosetta, run: arch -arm64 $0"
    version=$(sw_vers -productVersion)
    [ "${version%%.*}" -ge 14 ] || fail "MLX requires macOS 14 or newer (this is $version)"
    [ -n "$dry" ] || [ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "this must run as root: sudo $0 …"
    [ -n "$root" ] || [ "$user" != root ] || fail "the worker must not run as root; name another user with --user"
    say "$(sysctl -n machdep.cpu.brand_string), $(($(sysctl -n hw.memsize) / 1073741824)) GiB, macOS $version"
}

# Sets `python`, for an environment that has to be made.
find_python() {
    [ -z "$environment" ] || return 0
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2> /dev/null; then
            python=$(command -v "$candidate")
            return
        fi
    done
    fail "Python 3.11 to 3.13 is required${PYTHON:+ (PYTHON is $PYTHON)}: brew install python@3.13"
}

folders() {
    run mkdir -p "$app/releases" "$app/etc" "$app/models" "$app/var" "$app/log" "$(dirname "$plist")" "$(dirname "$rotation")"
    run chown "$user" "$app/var" "$app/log" "$app/etc" "$app/models"
    run chmod 700 "$app/etc" "$app/var"
}

# Sets `release`.
make_release() {
    number=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$source/spool/__init__.py")
    release=$app/releases/$number-$(date -u +%Y%m%dT%H%M%S)
    [ ! -e "$release" ] || fail "$release exists already; run the command again"
    say "release: $release"
    run mkdir -p "$release"
    if [ -z "$dry" ]; then
        (cd "$source" && tar -cf - --exclude __pycache__ pyproject.toml constraints.txt README.md LICENSE NOTICE \
            spool kernels worker api migrations models ops/locks ops/mac ops/environment.sh) \
            | tar -C "$release" --no-same-owner -xf -
        # A checkout may be readable by its owner only.
        chmod -R u+rw,go-w,a+rX "$release"
    fi
    if [ -n "$environment" ]; then
        run ln -s "$environment" "$release/.venv"
    else
        run env PYTHON="$python" "$release/ops/environment.sh" "$release/.venv" worker
    fi
}

get_settings() {
    [ -z "$settings" ] || [ -r "$settings" ] || fail "$settings cannot be read"
    if [ -n "$settings" ]; then
        (umask 077 && run cp "$settings" "$app/etc/worker.env")
    elif [ ! -e "$app/etc/worker.env" ]; then
        [ -n "$dry" ] || fail "--settings FILE is required: the addresses of database, broker and object store (see docs/on-a-mac.md)"
    fi
    # Passwords stand in it.
    run chown "$user" "$app/etc/worker.env"
    run chmod 600 "$app/etc/worker.env"
}

get_model() {
    [ -n "$model" ] || return 0
    case "$model" in ?*=?*/?*) ;; *) fail "--model must be NAME=OWNER/REPO[@REVISION]" ;; esac
    [ ${#sha256} -eq 64 ] || fail "--sha256 is required: the SHA-256 of model.safetensors, which the model's page on the hub shows"
    name=${model%%=*}
    rest=${model#*=}
    repository=${rest%@*}
    revision=main
    [ "$repository" = "$rest" ] || revision=${rest##*@}
    place=$app/models/$name
    if [ -e "$place/model.safetensors" ] && same_hash "$place/model.safetensors"; then
        say "model $name is installed already"
    else
        from=${HF_ENDPOINT:-https://huggingface.co}/$repository/resolve/$revision
        draft=$app/models/.$name.draft
        say "model $name: from $from"
        run mkdir -p "$draft"
        for file in config.json model.safetensors; do
            run curl --fail --location --silent --show-error --retry 3 --output "$draft/$file" "$from/$file"
        done
        # Some have it inside their configuration.
        run curl --fail --location --silent --retry 3 --output "$draft/tokenizer.model" "$from/tokenizer.model" \
            || run rm -f "$draft/tokenizer.model"
        if [ -z "$dry" ] && ! same_hash "$draft/model.safetensors"; then
            found=$(hash_of "$draft/model.safetensors")
            rm -rf "$draft"
            fail "model $name has the SHA-256 $found instead of $sha256, and is not used"
        fi
        run chmod -R a+rX "$draft"
        run rm -rf "$place"
        run mv "$draft" "$place"
    fi
    [ -n "$dry" ] || grep -q '^SPOOL_MODELS=' "$app/etc/worker.env" || {
        printf '\nSPOOL_MODELS=%s=%s\n' "$name" "$place" >> "$app/etc/worker.env"
    }
}
hash_of() { shasum -a 256 "$1" | cut -d' ' -f1; }
same_hash() { [ "$(hash_of "$1")" = "$sha256" ]; }

fill_in() { sed -e "s|@APP@|$app|g" -e "s|@USER@|$user|g" "$1"; }
write_service() {
    for pair in "$label.plist:$plist" "newsyslog.conf:$rotation"; do
        target=${pair#*:}
        if [ -n "$dry" ]; then
            say "would write: $target"
        else
            fill_in "$source/ops/mac/${pair%%:*}" > "$target.draft"
            chmod 644 "$target.draft"
            mv "$target.draft" "$target"
        fi
    done
    ! command -v plutil > /dev/null || run plutil -lint -s "$plist"
}

start() { run launchctl bootstrap system "$plist"; }
# launchd sends SIGTERM: the worker hands its jobs back at their next saved chunk, within ExitTimeOut.
drain() {
    loaded || return 0
    say "draining"
    run launchctl bootout "system/$label" || true
    [ -z "$dry" ] || return 0
    waited=0
    while loaded; do
        [ "$waited" -lt 200 ] || fail "the worker did not stop; see: launchctl print system/$label"
        sleep 1
        waited=$((waited + 1))
    done
}
point_to() { run ln -sfn "$1" "$app/current"; }

install() {
    check_mac
    ! loaded || fail "the worker is installed already; to upgrade it, run: $0 upgrade"
    find_python
    folders
    get_settings
    make_release
    get_model
    point_to "$release"
    write_service
    [ -n "$dry" ] || worker check || fail "the check above failed; nothing was started. Correct this and run the command again"
    start
    [ -n "$dry" ] || worker status --wait "$READY_SECONDS" || fail "the worker did not become ready; see $app/log"
}

upgrade() {
    check_mac
    [ -e "$app/current" ] || fail "nothing is installed; run: $0 install"
    find_python
    before=$(readlink "$app/current")
    [ -z "$settings" ] || get_settings
    make_release
    get_model
    drain
    point_to "$release"
    write_service
    if [ -n "$dry" ]; then
        start
        return
    fi
    if worker check && start && worker status --wait "$READY_SECONDS"; then
        clean "$before"
        say "upgraded to $release"
        return
    fi
    say "the new release does not work here; going back to $before" >&2
    drain
    point_to "$before"
    fill_in "$before/ops/mac/$label.plist" > "$plist"
    rm -rf "$release"
    start
    worker status --wait "$READY_SECONDS" || fail "the old release did not become ready either; see $app/log"
    fail "not upgraded; the old release is running again"
}

# Keeps the newest ones, and what stood before.
clean() {
    # shellcheck disable=SC2012 # their names are ours
    ls -1t "$app/releases" | tail -n +$((KEPT_RELEASES + 1)) | while IFS= read -r old; do
        [ "$app/releases/$old" = "$1" ] || rm -rf "${app:?}/releases/$old"
    done
}

uninstall() {
    drain
    run rm -f "$plist" "$rotation" "$app/current"
    run rm -rf "$app/releases"
    if [ -n "$purge" ]; then
        run rm -rf "$app"
    else
        say "kept: $app/etc, models, var and log (--purge removes them)"
    fi
}

status() {
    loaded || fail "the worker is not installed, or launchd has not loaded it"
    worker status
}

[ $# -gt 0 ] || usage
command=$1
shift
while [ $# -gt 0 ]; do
    case "$1" in
        --dry-run) dry=yes ;;
        --purge) purge=yes ;;
        --settings | --model | --sha256 | --user | --environment)
            [ $# -ge 2 ] || fail "$1 needs a value"
            name=${1#--}
            eval "$name=\$2"
            shift
            ;;
        *) usage ;;
    esac
    shift
done
case "$command" in install | upgrade | uninstall | status) "$command" ;; *) usage ;; esac
