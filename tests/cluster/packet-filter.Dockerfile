# An image with iptables and nsenter, with which the cluster test drops packets between containers.
FROM redis:8
USER root
RUN apt-get update && apt-get install -y --no-install-recommends iptables util-linux && rm -rf /var/lib/apt/lists/*
ENTRYPOINT []
