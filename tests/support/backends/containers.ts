import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { StartedBackends } from './backend.ts'

const run = promisify(execFile)

const images = {
  postgres: 'postgres:17-alpine',
  redis: 'redis:8-alpine',
  rabbitmq: 'rabbitmq:4-management-alpine',
} as const

// Limit for the start of a container. It does not include the download of the images in the first run.
const startupTimeoutMs = 120_000

/**
 * Starts the three servers in containers that are removed at the end of the run.
 *
 * @throws {Error} when no Docker engine responds (the `docker` command is not enough) or a container does not start.
 */
export async function startContainers(): Promise<StartedBackends> {
  await assertEngineResponds()
  // Imported here, because importing them takes longer than finding servers on a machine without Docker.
  const [{ PostgreSqlContainer }, { RedisContainer }, { RabbitMQContainer }] = await Promise.all([
    import('@testcontainers/postgresql'),
    import('@testcontainers/redis'),
    import('@testcontainers/rabbitmq'),
  ])
  const started = await Promise.allSettled([
    new PostgreSqlContainer(images.postgres)
      .withCommand(['postgres', '-c', 'fsync=off', '-c', 'max_connections=300'])
      .withStartupTimeout(startupTimeoutMs)
      .start(),
    new RedisContainer(images.redis)
      .withCommand(['redis-server', '--appendonly', 'yes'])
      .withStartupTimeout(startupTimeoutMs)
      .start(),
    new RabbitMQContainer(images.rabbitmq).withStartupTimeout(startupTimeoutMs).start(),
  ] as const)
  const stop = async (): Promise<void> => {
    for (const one of started) {
      if (one.status === 'fulfilled') await one.value.stop()
    }
  }
  const [postgres, redis, rabbitmq] = started
  if (
    postgres.status === 'rejected' ||
    redis.status === 'rejected' ||
    rabbitmq.status === 'rejected'
  ) {
    await stop()
    const failed = started.find((one) => one.status === 'rejected')
    throw new Error('a container did not start', { cause: failed?.reason })
  }
  // The AMQP URL of the container has no user, and not every client defaults to guest.
  const amqp = new URL(rabbitmq.value.getAmqpUrl())
  amqp.username = 'guest'
  amqp.password = 'guest'
  return {
    backends: {
      postgres: {
        url: postgres.value.getConnectionUri(),
        origin: `in Docker (${images.postgres})`,
      },
      redis: { url: redis.value.getConnectionUrl(), origin: `in Docker (${images.redis})` },
      rabbitmq: { url: amqp.href, origin: `in Docker (${images.rabbitmq})` },
    },
    stop,
  }
}

async function assertEngineResponds(): Promise<void> {
  const limits = { timeout: 5_000 }
  try {
    await run('docker', ['version', '--format', '{{.Server.Version}}'], limits)
  } catch {
    throw new Error('no engine responds')
  }
  // The docker command uses contexts (Colima, Rancher, rootless); Testcontainers reads DOCKER_HOST only.
  if (!process.env['DOCKER_HOST']) {
    const format = '{{.Endpoints.docker.Host}}'
    const { stdout } = await run('docker', ['context', 'inspect', '--format', format], limits)
    process.env['DOCKER_HOST'] = stdout.trim()
  }
}
