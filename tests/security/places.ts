/** Everywhere a system writes to, read whole: one reader a place. */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { CREDENTIALS_EXCHANGE } from '@integration-host/shared/contracts/credential-event'
import {
  DEAD_EXCHANGE,
  deadQueue,
  delayName,
  delays,
  stepQueue,
  stepRoutingKey,
  STEPS_EXCHANGE,
} from '@integration-host/shared/contracts/step-message'
import {
  COORDINATORS_EXCHANGE,
  TRANSACTIONS_EXCHANGE,
} from '@integration-host/shared/contracts/transaction-event'
import { type Channel, connect } from 'amqplib'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import type { Finding } from './canaries.ts'

const PROCESS = 'OrderProcess'
const STEPS = ['order', 'report', 'csv']

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

/** Every exchange of the system, with every routing key that leads anywhere in it. */
const routes: readonly (readonly [
  exchange: string,
  type: string,
  routingKeys: readonly string[],
])[] = [
  [CREDENTIALS_EXCHANGE, 'topic', ['#']],
  [TRANSACTIONS_EXCHANGE, 'topic', ['#']],
  [COORDINATORS_EXCHANGE, 'fanout', ['']],
  [STEPS_EXCHANGE, 'direct', STEPS.map((step) => stepRoutingKey(PROCESS, step))],
  [DEAD_EXCHANGE, 'direct', [PROCESS]],
  ...delays.map(({ name }) => [delayName(name), 'fanout', ['']] as const),
]
export const exchangeNames: readonly string[] = routes.map(([exchange]) => exchange)
const queueNames = [
  ...STEPS.map((step) => stepQueue(PROCESS, step)),
  deadQueue(PROCESS),
  ...delays.map(({ name }) => delayName(name)),
]

/** Taps a system that has declared its exchanges. */
export async function tapMessages(url: string, prefix: string): Promise<MessageTap> {
  const connection = await connect(url)
  const channel = await connection.createChannel()
  const findings: Finding[] = []
  const keep = (what: string, fields: unknown, properties: unknown, content: Buffer): void => {
    const envelope = JSON.stringify({ fields, properties })
    findings.push({ place: `RabbitMQ ${what}`, bytes: joined([envelope, content]) })
  }
  for (const [exchange, , routingKeys] of routes) {
    const { queue } = await channel.assertQueue('', { exclusive: true })
    for (const key of routingKeys) await channel.bindQueue(queue, prefix + exchange, key)
    await channel.consume(
      queue,
      (message) =>
        message &&
        keep(`exchange ${exchange}`, message.fields, message.properties, message.content),
      { noAck: true },
    )
  }
  return {
    channel,
    async read() {
      for (const name of queueNames) {
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
