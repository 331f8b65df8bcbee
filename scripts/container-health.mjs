// Exit code 0 when the service on this container's port is ready. Usage: container-health.mjs <port>
const answer = await fetch(`http://127.0.0.1:${process.argv[2]}/health/ready`).catch(() => null)
process.exit(answer?.ok ? 0 : 1)
