#!/usr/bin/env bash
# Runs a PostgreSQL server. Usage: postgres.sh <own number> <address of server 1> <of server 2> <of server 3>
#
# Server 1 creates the database. A server becomes a standby if another server is the primary, also if it was the primary
# before: its data may contain what the new primary does not have, so it is replaced by a copy. A commit needs one standby.
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

# Writes which server is the primary. The cluster test changes it when it promotes another one.
follow() {
  echo "primary_conninfo = 'host=$1 user=postgres application_name=postgres$own'" >>"$PGDATA/postgresql.auto.conf"
}

start() {
  exec docker-entrypoint.sh postgres \
    -c synchronous_standby_names='ANY 1 (postgres1, postgres2, postgres3)' \
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
