import { setTimeout as delay } from 'node:timers/promises'
import amqp from 'amqplib'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import type { BackendKind } from './backend.ts'

const probeTimeoutMs = 3_000

/**
 * Connects to a server with the server's own protocol, because an open port alone does not show that tests can use
 * the server.
 *
 * @throws {Error} whose message says in one phrase, without the URL, why the tests cannot use the server
 */
export async function probe(kind: BackendKind, url: string): Promise<void> {
  const timeout = AbortSignal.timeout(probeTimeoutMs)
  const expired = new Promise<never>((_, reject) => {
    timeout.addEventListener('abort', () => reject(new Error('no response within 3 s')))
  })
  await Promise.race([probes[kind](url), expired])
}

/** Repeats `probe` until the server responds. Rejects immediately if `whileRunning` rejects. */
export async function untilReachable(
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
        throw new Error(`${kind} did not respond within ${deadlineMs / 1000} s`, { cause: error })
      }
      await delay(100)
    }
  }
}

/**
 * Returns the messages of an error and of all its causes on one line. The outer message of a driver's error is
 * often empty.
 */
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
      // The user needs permission to create databases, because every test creates its own database.
      if (role?.creates !== true) throw new Error('the user may not create databases')
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
    // The rejection of the call below already reports the failure. Without this listener, ioredis would print it
    // too.
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
      // The step queues are quorum queues with TTL and at-least-once dead-lettering, which RabbitMQ supports since
      // 3.10.
      if (product !== 'RabbitMQ' || major < 3 || (major === 3 && minor < 10)) {
        throw new Error(`the server is ${product} ${version}, but RabbitMQ 3.10 or newer is needed`)
      }
    } finally {
      await connection.close()
    }
  },
}
