import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { promisify } from 'node:util'
import type { StartedBackends } from './backend.ts'

const run = promisify(execFile)

const images = {
  postgres: 'postgres:17-alpine',
  redis: 'redis:8-alpine',
  rabbitmq: 'rabbitmq:4-management-alpine',
} as const

// Maximum time for the start of a container, not including the download of the image in the first run.
const startupTimeoutMs = 120_000

/**
 * Starts the three servers in containers, which are removed at the end of the run.
 *
 * @throws {Error} if no Docker engine responds (the `docker` command alone is not enough) or a container does not
 * start
 */
export async function startContainers(): Promise<StartedBackends> {
  await assertEngineResponds()
  // The import of Testcontainers takes long on a machine without Docker, so it is imported only when it is needed.
  const [{ PostgreSqlContainer }, { RedisContainer }, { RabbitMQContainer }] = await Promise.all([
    import('@testcontainers/postgresql'),
    import('@testcontainers/redis'),
    import('@testcontainers/rabbitmq'),
  ])
  const started = await Promise.allSettled([
    // The search for leaked secrets needs a password that does not occur by chance.
    new PostgreSqlContainer(images.postgres)
      .withPassword(randomBytes(16).toString('hex'))
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
  // The container's AMQP URL contains no user. Not every client uses the user `guest` by default, so this user is
  // added.
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
  // The docker command finds its engine through contexts (Colima, Rancher, rootless), but Testcontainers reads only
  // DOCKER_HOST. Therefore DOCKER_HOST is set to the address of the current context.
  if (!process.env['DOCKER_HOST']) {
    const format = '{{.Endpoints.docker.Host}}'
    const { stdout } = await run('docker', ['context', 'inspect', '--format', format], limits)
    process.env['DOCKER_HOST'] = stdout.trim()
  }
}
