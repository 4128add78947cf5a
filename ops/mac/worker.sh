#!/bin/sh
# Runs `spool-worker` of the release that this file lies in, with the settings of this Mac; launchd starts it as
# `worker.sh run`. The Mac does not fall asleep for as long as the worker runs.
set -eu
release=$(cd "$(dirname "$0")/../.." && pwd -P)
app=${SPOOL_APP:-$(cd "$release/../.." && pwd -P)}

# Lines of NAME=value as they stand: nothing in them is run.
while IFS= read -r line || [ -n "$line" ]; do
    case "$line" in SPOOL_*=*) export "${line?}" ;; esac
done < "$app/etc/worker.env"
: "${SPOOL_HOME:=$app/var}" "${SPOOL_LOG_FILE:=$app/log/worker.log}" "${SPOOL_POOL:=metal}"
export SPOOL_HOME SPOOL_POOL
cd "$release"
if [ "${1:-}" = run ]; then
    export SPOOL_LOG_FILE
    # It watches this process, which becomes the worker: launchd's SIGTERM goes to the worker itself.
    [ "${SPOOL_CAFFEINATE:-yes}" = no ] || caffeinate -i -s -w $$ &
fi
exec .venv/bin/python -m worker.cli.main "$@"
