#!/bin/bash
# Exits with 0 if the service on the given port of this container is ready. Usage: container-health.sh <port>
# A shell script and not a Node program, because it runs every few seconds in each container and Node takes a
# tenth of a second to start.
set -eu
exec 3<>"/dev/tcp/127.0.0.1/$1"
printf 'GET /health/ready HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&3
read -r _ status _ <&3
[ "$status" = 200 ]
