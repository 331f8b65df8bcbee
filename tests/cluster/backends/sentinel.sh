#!/bin/sh
# Runs a Sentinel. Usage: sentinel.sh <address of the first primary>
set -eu
if [ ! -f /data/sentinel.conf ]; then
  cat >/data/sentinel.conf <<END
bind 0.0.0.0
protected-mode no
dir /data
sentinel monitor main $1 6379 2
sentinel down-after-milliseconds main 5000
sentinel failover-timeout main 10000
sentinel parallel-syncs main 2
END
fi
exec redis-server /data/sentinel.conf --sentinel
