/** Reads all data that a system wrote to Redis, RabbitMQ, PostgreSQL and its data folder. */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Channel, connect } from 'amqplib'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { exchanges, queues } from '../topology.ts'
import type { WrittenData } from './secret-search.ts'

/**
 * Reads the name and value of every key with a prefix.
 *
 * @throws {Error} for a value whose type is not supported
 */
export async function readRedis(url: string, prefix: string): Promise<WrittenData[]> {
  const redis = new Redis(url)
  const written: WrittenData[] = []
  for await (const keys of redis.scanStream({ match: `${prefix}*`, count: 1_000 })) {
    for (const key of keys as string[]) {
      const parts = await valuesOf(redis, key)
      written.push({ place: `Redis ${key.slice(prefix.length)}`, bytes: joined([key, ...parts]) })
    }
  }
  redis.disconnect()
  return written
}

async function valuesOf(redis: Redis, key: string): Promise<readonly (string | Buffer)[]> {
  const type = await redis.type(key)
  switch (type) {
    case 'string':
      return [(await redis.getBuffer(key)) ?? Buffer.alloc(0)]
    case 'hash':
      return Object.entries(await redis.hgetallBuffer(key)).flatMap(([field, value]) => [
        Buffer.from(field),
        value,
      ])
    case 'list':
      return redis.lrangeBuffer(key, 0, -1)
    case 'set':
      return redis.smembersBuffer(key)
    case 'zset':
      return redis.zrangeBuffer(key, '0', '-1')
    case 'stream':
      return (await redis.xrangeBuffer(key, '-', '+')).flatMap(([id, fields]) => [id, ...fields])
    case 'none': // the key has expired since the scan
      return []
    default:
      throw new Error(`${key} is a ${type}, which this reader does not support`)
  }
}

/** Records a copy of every message that a system publishes from now on. */
export interface MessageRecorder extends AsyncDisposable {
  /**
   * Returns the recorded messages and the messages that are still in the queues of the system. Empties these
   * queues.
   */
  read(): Promise<WrittenData[]>
  readonly channel: Channel
}

export const exchangeNames: readonly string[] = exchanges.map(({ name }) => name)

/** Returns the routing keys for which an exchange has at least one bound queue. */
function routingKeys({ name, type }: (typeof exchanges)[number]): readonly string[] {
  if (type === 'topic') return ['#']
  const bindings = queues.flatMap((queue) => queue.bindings)
  const keys = bindings.filter(({ exchange }) => exchange === name).map((to) => to.routingKey)
  return type === 'fanout' ? [''] : keys
}

/** Starts recording. The system must have declared its exchanges before. */
export async function recordMessages(url: string, prefix: string): Promise<MessageRecorder> {
  const connection = await connect(url)
  const channel = await connection.createChannel()
  const written: WrittenData[] = []
  const record = (what: string, fields: unknown, properties: unknown, content: Buffer): void => {
    const envelope = JSON.stringify({ fields, properties })
    written.push({ place: `RabbitMQ ${what}`, bytes: joined([envelope, content]) })
  }
  for (const exchange of exchanges) {
    const { name } = exchange
    const { queue } = await channel.assertQueue('', { exclusive: true })
    for (const key of routingKeys(exchange)) await channel.bindQueue(queue, prefix + name, key)
    await channel.consume(
      queue,
      (message) =>
        message && record(`exchange ${name}`, message.fields, message.properties, message.content),
      { noAck: true },
    )
  }
  return {
    channel,
    async read() {
      for (const { name } of queues) {
        for (;;) {
          const message = await channel.get(prefix + name, { noAck: true })
          if (message === false) break
          record(`queue ${name}`, message.fields, message.properties, message.content)
        }
      }
      return written
    },
    [Symbol.asyncDispose]: () => connection.close(),
  }
}

/** Reads every row of every table of a database, including the table of applied migrations. */
export async function readPostgres(url: string): Promise<WrittenData[]> {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  const tables = await sql<{ schema: string; name: string }[]>`
    select table_schema as schema, table_name as name from information_schema.tables
    where table_schema not in ('pg_catalog', 'information_schema')`
  const written: WrittenData[] = []
  for (const { schema, name } of tables) {
    const rows = await sql<{ row: string }[]>`
      select t::text as row from ${sql(schema)}.${sql(name)} as t`
    written.push({ place: `Postgres ${name}`, bytes: joined(rows.map(({ row }) => row)) })
  }
  await sql.end()
  return written
}

/** Reads the path and the content of every file below a folder. */
export async function readFolder(folder: string): Promise<WrittenData[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  return Promise.all(
    entries
      .filter((entry) => entry.isFile())
      .map(async ({ parentPath, name }) => ({
        place: `file ${name}`,
        bytes: joined([parentPath, name, await readFile(join(parentPath, name))]),
      })),
  )
}

const joined = (parts: readonly (string | Buffer)[]): Buffer =>
  Buffer.concat(parts.flatMap((part) => [Buffer.from(part), Buffer.from('\n')]))
