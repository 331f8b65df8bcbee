/** Everywhere a system writes to, read whole: one reader a place. */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Channel, connect } from 'amqplib'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { exchanges, queues } from '../support/topology.ts'
import type { Finding } from './canaries.ts'

/** Every key under a prefix, of every type, name and value. @throws {Error} for a type that is not known here */
export async function readRedis(url: string, prefix: string): Promise<Finding[]> {
  const redis = new Redis(url)
  const findings: Finding[] = []
  for await (const keys of redis.scanStream({ match: `${prefix}*`, count: 1_000 })) {
    for (const key of keys as string[]) {
      const parts = await valuesOf(redis, key)
      findings.push({ place: `Redis ${key.slice(prefix.length)}`, bytes: joined([key, ...parts]) })
    }
  }
  redis.disconnect()
  return findings
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
    case 'none': // it has expired since the scan
      return []
    default:
      throw new Error(`${key} is a ${type}, which nobody reads here`)
  }
}

/** A copy of every message of a system, from now on. */
export interface MessageTap extends AsyncDisposable {
  /** What came so far; with it what still waits in the queues of the system, which are emptied. */
  read(): Promise<Finding[]>
  readonly channel: Channel
}

export const exchangeNames: readonly string[] = exchanges.map(({ name }) => name)

/** The routing keys that lead anywhere from an exchange. */
function routingKeys({ name, type }: (typeof exchanges)[number]): readonly string[] {
  if (type === 'topic') return ['#']
  const bindings = queues.flatMap((queue) => queue.bindings)
  const keys = bindings.filter(({ exchange }) => exchange === name).map((to) => to.routingKey)
  return type === 'fanout' ? [''] : keys
}

/** Taps a system that has declared its exchanges. */
export async function tapMessages(url: string, prefix: string): Promise<MessageTap> {
  const connection = await connect(url)
  const channel = await connection.createChannel()
  const findings: Finding[] = []
  const keep = (what: string, fields: unknown, properties: unknown, content: Buffer): void => {
    const envelope = JSON.stringify({ fields, properties })
    findings.push({ place: `RabbitMQ ${what}`, bytes: joined([envelope, content]) })
  }
  for (const exchange of exchanges) {
    const { name } = exchange
    const { queue } = await channel.assertQueue('', { exclusive: true })
    for (const key of routingKeys(exchange)) await channel.bindQueue(queue, prefix + name, key)
    await channel.consume(
      queue,
      (message) =>
        message && keep(`exchange ${name}`, message.fields, message.properties, message.content),
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
          keep(`queue ${name}`, message.fields, message.properties, message.content)
        }
      }
      return findings
    },
    [Symbol.asyncDispose]: () => connection.close(),
  }
}

/** Every row of every table of a database, the migrations' own included, and the comments on them. */
export async function readPostgres(url: string): Promise<Finding[]> {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  const tables = await sql<{ schema: string; name: string }[]>`
    select table_schema as schema, table_name as name from information_schema.tables
    where table_schema not in ('pg_catalog', 'information_schema')`
  const findings: Finding[] = []
  for (const { schema, name } of tables) {
    const rows = await sql<{ row: string }[]>`
      select t::text as row from ${sql(schema)}.${sql(name)} as t`
    findings.push({ place: `Postgres ${name}`, bytes: joined(rows.map(({ row }) => row)) })
  }
  await sql.end()
  return findings
}

/** Every file below a folder, name and content. */
export async function readFolder(folder: string): Promise<Finding[]> {
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
