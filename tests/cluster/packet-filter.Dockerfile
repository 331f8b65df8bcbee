# iptables and nsenter, with which the cluster test cuts connections between containers.
FROM redis:8
USER root
RUN apt-get update && apt-get install -y --no-install-recommends iptables util-linux && rm -rf /var/lib/apt/lists/*
ENTRYPOINT []
