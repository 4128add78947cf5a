#!/bin/sh
# Writes ./secrets for docker-compose.yml (random) and .env (ops/images/example.env), and overwrites neither. The folder is
# yours alone; the files in it are readable, because each container reads them as a user of its own.
#
#   sh ops/images/secrets.sh                    # once, before the first `docker compose up`
#   sh ops/images/secrets.sh --for-a-mac HOST   # prints the settings of a worker that reaches these servers as HOST
set -eu
cd "$(dirname "$0")/../.."
mkdir -p -m 700 secrets
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
write() { [ -e "secrets/$1" ] || printf '%s' "$2" > "secrets/$1"; }
umask 022
write database_password "$(random)"
write broker_password "$(random)"
write s3_access_key_id "spool"
write s3_secret_access_key "$(random)"
write api_token "$(random)"
# Encrypts the secrets of webhooks in the database: keep it beside the backups of that.
write secret_key "$(random)"
# Signs receipts of transcripts.
write receipt_key "$(random)"
write grafana_password "$(random)"
# Nobody, until you name who is to be told of alerts: ops/watch/alertmanager.yml says what it takes.
write alert_url "http://127.0.0.1:9/nobody"
write database_url "postgresql+psycopg://spool:$(cat secrets/database_password)@database:5432/spool"
write redis_url "redis://:$(cat secrets/broker_password)@broker:6379/0"
# A full broker refuses messages, which then wait in SQL; a container over its memory would be killed.
write broker.conf "requirepass $(cat secrets/broker_password)
appendonly yes
maxmemory 384mb
maxmemory-policy noeviction
dir /data
"

[ -e .env ] || cp ops/images/example.env .env

[ $# -eq 0 ] && exit 0
if [ $# -ne 2 ] || [ "$1" != --for-a-mac ]; then
    echo "usage: sh ops/images/secrets.sh [--for-a-mac HOST]" >&2
    exit 2
fi
cat << SETTINGS
SPOOL_DATABASE_URL=postgresql+psycopg://spool:$(cat secrets/database_password)@$2:5432/spool
SPOOL_REDIS_URL=redis://:$(cat secrets/broker_password)@$2:6379/0
SPOOL_OBJECTS=s3://spool
SPOOL_S3_ENDPOINT_URL=http://$2:7070
SPOOL_S3_ACCESS_KEY_ID=$(cat secrets/s3_access_key_id)
SPOOL_S3_SECRET_ACCESS_KEY=$(cat secrets/s3_secret_access_key)
SPOOL_POOL=metal
SETTINGS
# Quotas, shares and the like, which workers need too. A Mac takes what follows the = as it stands.
sed -n -e "s/^\(SPOOL_[A-Z0-9_]*=\)'\(.*\)' *$/\1\2/p" -e t -e '/^SPOOL_/p' .env
