#!/bin/sh
# Runs a RabbitMQ node. All nodes of a cluster need the same Erlang cookie.
set -eu
if [ ! -f /var/lib/rabbitmq/.erlang.cookie ]; then
  umask 077
  printf cluster-test >/var/lib/rabbitmq/.erlang.cookie
fi
# Disables the management plugin, which is not used. Disables busy waiting, so that three nodes leave processor time to
# the other containers.
export RABBITMQ_ENABLED_PLUGINS_FILE=/tmp/enabled_plugins
echo '[].' >/tmp/enabled_plugins
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none'
exec rabbitmq-server
