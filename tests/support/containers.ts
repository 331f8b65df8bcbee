import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { StartedBackends } from './backend.ts'

const run = promisify(execFile)

const images = {
  postgres: 'postgres:17-alpine',
  redis: 'redis:8-alpine',
  rabbitmq: 'rabbitmq:4-management-alpine',
} as const

// The first run downloads the images before this starts to count.
const startupTimeoutMs = 120_000

/**
 * Starts the three servers in containers that go away with the run.
 *
 * @throws {Error} when no engine answers (a `docker` command alone is none) or a container does not start.
 */
export async function startContainers(): Promise<StartedBackends> {
  await assertEngineAnswers()
  // Loaded here, because loading them takes longer than finding the servers of a machine without Docker.
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
  // Its own address leaves out the user, which not every client fills in.
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

async function assertEngineAnswers(): Promise<void> {
  const limits = { timeout: 5_000 }
  try {
    await run('docker', ['version', '--format', '{{.Server.Version}}'], limits)
  } catch {
    throw new Error('no engine answers')
  }
  // The command line follows contexts (Colima, Rancher, rootless); Testcontainers knows the variable only.
  if (!process.env['DOCKER_HOST']) {
    const format = '{{.Endpoints.docker.Host}}'
    const { stdout } = await run('docker', ['context', 'inspect', '--format', format], limits)
    process.env['DOCKER_HOST'] = stdout.trim()
  }
}
