#!/usr/bin/env bash
# Runs a PostgreSQL server. Usage: postgres.sh <own number> <address of server 1> <of server 2> <of server 3>
#
# Server 1 creates the database. A server that starts while another server is the primary becomes a standby. If it was
# the primary before, its data may contain commits that the new primary does not have. Therefore its data is deleted and
# copied from the new primary. A commit waits for one standby.
set -eu
own=$1
shift

primary() {
  local address
  for address in "$@"; do
    if [ "$(psql "host=$address user=postgres dbname=postgres connect_timeout=2" -Atc 'SELECT NOT pg_is_in_recovery()' 2>/dev/null)" = t ]; then
      echo "$address"
      return
    fi
  done
  return 1
}

# Sets the primary that this standby follows. When the cluster test promotes another server, it changes this setting.
follow() {
  echo "primary_conninfo = 'host=$1 user=postgres application_name=postgres$own'" >>"$PGDATA/postgresql.auto.conf"
}

start() {
  exec docker-entrypoint.sh postgres \
    -c synchronous_standby_names="$SYNCHRONOUS_STANDBY_NAMES" \
    -c max_connections=200 -c shared_buffers=32MB -c wal_keep_size=256MB \
    -c wal_sender_timeout=5s -c wal_receiver_timeout=5s -c wal_retrieve_retry_interval=1s
}

if [ -s "$PGDATA/PG_VERSION" ]; then
  from=$(primary "$@" || true)
  if [ -f "$PGDATA/standby.signal" ]; then
    [ -z "$from" ] || follow "$from"
    start
  fi
  [ -n "$from" ] || start
elif [ "$own" = 1 ]; then
  start
fi
until from=$(primary "$@"); do sleep 0.5; done
find "$PGDATA" -mindepth 1 -delete 2>/dev/null || true
mkdir -p "$PGDATA"
chmod 700 "$PGDATA"
pg_basebackup --pgdata="$PGDATA" --dbname="host=$from user=postgres" --checkpoint=fast --wal-method=stream
touch "$PGDATA/standby.signal"
follow "$from"
start
