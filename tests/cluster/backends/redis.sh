#!/bin/sh
# Runs a Redis server. Usage: redis.sh <own address> <address of the first primary>
# When Sentinel changes the role of a server, Redis writes the new role into its configuration file. A restarted
# container keeps this file.
set -eu
if [ ! -f /data/redis.conf ]; then
  cat >/data/redis.conf <<END
bind 0.0.0.0
protected-mode no
dir /data
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
min-replicas-to-write 1
min-replicas-max-lag 2
repl-diskless-sync-delay 0
replica-announce-ip $1
END
  [ "$1" = "$2" ] || echo "replicaof $2 6379" >>/data/redis.conf
fi
exec redis-server /data/redis.conf
