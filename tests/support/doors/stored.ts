/** What the backends of a system hold. Two of these values are compared before and after requests. */
import { readdir } from 'node:fs/promises'
import { connect } from 'amqplib'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { backend, type System } from '../system.ts'
import { allQueues } from '../topology.ts'

/** The number of keys, bytes, rows, messages or files, by what they belong to. */
export type Stored = Readonly<Record<string, number>>

export async function storedBy(system: System): Promise<Stored> {
  const parts = await Promise.all([
    inRedis(system.redisKeyPrefix),
    inPostgres(system.databaseUrl),
    inRabbitMq(system.amqpPrefix),
    readdir(system.dataDir, { recursive: true }).then((files) => ({
      'files of DATA_DIR': files.length,
    })),
  ])
  return Object.assign({}, ...parts) as Stored
}

async function inRedis(prefix: string): Promise<Stored> {
  const redis = new Redis(backend('TEST_REDIS_URL'))
  const found: Record<string, number> = {}
  for await (const page of redis.scanStream({ match: `${prefix}*`, count: 1_000 }) as AsyncIterable<
    string[]
  >)
    for (const key of page) {
      // A key that has expired meanwhile holds nothing.
      const bytes = (await redis.memory('USAGE', key, 'SAMPLES', 0)) ?? 0
      found[`bytes of the Redis key ${key.slice(prefix.length)}`] = bytes
    }
  redis.disconnect()
  return found
}

async function inPostgres(url: string): Promise<Stored> {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  const tables = await sql<{ schema: string; name: string }[]>`
    select table_schema as schema, table_name as name from information_schema.tables
    where table_type = 'BASE TABLE' and table_schema not in ('pg_catalog', 'information_schema')`
  const found: Record<string, number> = {}
  for (const { schema, name } of tables) {
    const [row] = await sql<
      { rows: string }[]
    >`select count(*) as rows from ${sql(schema)}.${sql(name)}`
    found[`rows of the table ${name}`] = Number(row?.rows)
  }
  await sql.end()
  return found
}

async function inRabbitMq(prefix: string): Promise<Stored> {
  const connection = await connect(backend('TEST_AMQP_URL'))
  connection.on('error', () => undefined)
  const found: Record<string, number> = {}
  for (const { name } of allQueues) {
    // Checking a queue that does not exist closes the channel.
    const channel = await connection.createChannel()
    channel.on('error', () => undefined)
    const queue = await channel.checkQueue(prefix + name).catch(() => null)
    if (queue === null) continue
    found[`messages in the queue ${name}`] = queue.messageCount
    await channel.close()
  }
  await connection.close()
  return found
}
