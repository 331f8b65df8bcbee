import { setTimeout as delay } from 'node:timers/promises'
import amqp from 'amqplib'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import type { BackendKind } from './backend.ts'

const probeTimeoutMs = 3_000

/**
 * Speaks to a server in its own protocol, as the tests will: an open port is not enough.
 *
 * @throws {Error} whose message says in one phrase, without the URL, why the tests could not use it.
 */
export async function probe(kind: BackendKind, url: string): Promise<void> {
  const timeout = AbortSignal.timeout(probeTimeoutMs)
  const expired = new Promise<never>((_, reject) => {
    timeout.addEventListener('abort', () => reject(new Error('no answer within 3 s')))
  })
  await Promise.race([probes[kind](url), expired])
}

/** Repeats `probe` until the server answers; `whileRunning` rejects when waiting has become pointless. */
export async function untilAnswering(
  kind: BackendKind,
  url: string,
  { deadlineMs, whileRunning }: { deadlineMs: number; whileRunning: () => Promise<void> },
): Promise<void> {
  const deadline = Date.now() + deadlineMs
  for (;;) {
    await whileRunning()
    try {
      return await probe(kind, url)
    } catch (error) {
      if (Date.now() > deadline) {
        throw new Error(`${kind} did not answer within ${deadlineMs / 1000} s`, { cause: error })
      }
      await delay(100)
    }
  }
}

/** The message of an error and of what caused it, on one line; drivers often leave the outer one empty. */
export function reasonOf(error: unknown): string {
  if (error instanceof AggregateError) return reasonOf(error.errors[0])
  if (!(error instanceof Error)) return String(error)
  const message = error.message || ('code' in error ? String(error.code) : error.name)
  const cause = error.cause === undefined ? '' : ` (${reasonOf(error.cause)})`
  return `${message}${cause}`.replaceAll(/\s+/g, ' ').slice(0, 400)
}

const probes: Record<BackendKind, (url: string) => Promise<void>> = {
  async postgres(url) {
    const sql = postgres(url, { max: 1, connect_timeout: 3, onnotice: () => {} })
    try {
      const [role] = await sql<{ creates: boolean }[]>`
        select rolsuper or rolcreatedb as creates from pg_roles where rolname = current_user`
      // Every test works in a database of its own.
      if (role?.creates !== true) throw new Error('its user may not create databases')
    } finally {
      await sql.end({ timeout: 1 })
    }
  },

  async redis(url) {
    const redis = new Redis(url, {
      lazyConnect: true,
      connectTimeout: probeTimeoutMs,
      maxRetriesPerRequest: 0,
      retryStrategy: () => null,
    })
    // The failure that matters is the rejected call below; without a listener ioredis prints it as well.
    redis.on('error', () => {})
    try {
      await redis.connect()
      await redis.ping()
    } finally {
      redis.disconnect()
    }
  },

  async rabbitmq(url) {
    const connection = await amqp.connect(url, { timeout: probeTimeoutMs })
    connection.on('error', () => {})
    try {
      const { product, version } = connection.connection.serverProperties
      const [major = 0, minor = 0] = version.split('.').map(Number)
      // 3.10 brought what the step queues are declared with: TTL and at-least-once dead-lettering in quorum queues.
      if (product !== 'RabbitMQ' || major < 3 || (major === 3 && minor < 10)) {
        throw new Error(`it is ${product} ${version}, and RabbitMQ 3.10 or newer is needed`)
      }
    } finally {
      await connection.close()
    }
  },
}
