#!/bin/bash
# Exit code 0 when the service on this container's port is ready. Usage: container-health.sh <port>
# Not in Node: it is run every few seconds in each container, and a Node takes a tenth of a second to start.
set -eu
exec 3<>"/dev/tcp/127.0.0.1/$1"
printf 'GET /health/ready HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&3
read -r _ status _ <&3
[ "$status" = 200 ]
