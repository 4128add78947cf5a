#!/bin/sh
# Starts the S3 server on the folder /objects, whose folder `spool` is the bucket. Keys come from files: what stands
# in an environment can be read by `docker inspect`.
set -eu
ROOT_ACCESS_KEY="$(cat /run/secrets/s3_access_key_id)"
ROOT_SECRET_KEY="$(cat /run/secrets/s3_secret_access_key)"
# Both names that its versions have had.
ROOT_ACCESS_KEY_ID="$ROOT_ACCESS_KEY"
ROOT_SECRET_ACCESS_KEY="$ROOT_SECRET_KEY"
export ROOT_ACCESS_KEY ROOT_SECRET_KEY ROOT_ACCESS_KEY_ID ROOT_SECRET_ACCESS_KEY
mkdir -p /objects/spool
exec versitygw --port :7070 --health /health posix /objects
