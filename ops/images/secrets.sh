#!/bin/sh
# Writes ./secrets for docker-compose.yml: random, never overwritten. The folder is yours alone; the files in it
# are readable, because each container reads them as a user of its own.
set -eu
mkdir -p -m 700 secrets
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
write() { [ -e "secrets/$1" ] || printf '%s' "$2" > "secrets/$1"; }
write database_password "$(random)"
write broker_password "$(random)"
write s3_access_key_id "spool"
write s3_secret_access_key "$(random)"
write api_token "$(random)"
write database_url "postgresql+psycopg://spool:$(cat secrets/database_password)@database:5432/spool"
write redis_url "redis://:$(cat secrets/broker_password)@broker:6379/0"
write broker.conf "requirepass $(cat secrets/broker_password)
appendonly yes
maxmemory-policy noeviction
dir /data
"
