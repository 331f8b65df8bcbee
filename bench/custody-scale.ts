// Measures token-service with 10,000, 100,000 and 1,000,000 stored realms in a separate Redis: the start time, the
// memory, and the duration of the query for due credentials. Prints a table.
import { setTimeout as delay } from 'node:timers/promises'
import { parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { changeRecord } from '@integration-host/shared/test-support/change-record'
import type { Redis } from 'ioredis'
import { copyFirstRecord, nameOf } from './support/copy-records.ts'
import { type Custody, startCustody } from './support/custody.ts'
import { startPrivateRedis } from './support/private-redis.ts'
import { residentMb } from './support/process-usage.ts'
import { logCommands } from './support/redis-commands.ts'
import { quantile } from './support/statistics.ts'

const SIZES = [10_000, 100_000, 1_000_000]
const STARTS = 3
const IDLE_MS = 5_000
const DUE = 100
const TAKES = 500
const DAY_SECONDS = 86_400
const HOUR_MS = 3_600_000
const DEADLINE_MS = 60_000
/** A delay that is longer than the longest interval at which the service polls for due credentials. */
const LOOK_MS = 3_000
const DUE_INDEX = 'credentials:due'

await using opened = new AsyncDisposableStack()
const { url, redis } = opened.use(await startPrivateRedis({ appendOnly: false }))
const custody = opened.use(await startCustody(url))
const { system } = custody
// The provider must not rotate the refresh token, because all copies of a record contain the same refresh token.
await custody.sandbox('PUT', 'settings', { rotation: 'never', accessTokenSeconds: DAY_SECONDS })
const keys = parseKeyRing(new Secret(custody.credentialKeys))

const rows: Record<string, Record<string, string | number>> = {}
custody.startTokenService()
await system.ready('token-service')
await custody.connect(nameOf(0).slice('ACC-'.length))
await system.service('token-service').stop('SIGTERM')
let stored = 1
for (const size of SIZES) {
  await copyFirstRecord(redis, keys, stored, size)
  stored = size

  const readyMs: number[] = []
  for (let start = 0; start < STARTS; start += 1) {
    const startedAt = performance.now()
    custody.startTokenService()
    await system.ready('token-service')
    readyMs.push(performance.now() - startedAt)
    if (start < STARTS - 1) await system.service('token-service').stop('SIGTERM')
  }
  await delay(IDLE_MS)
  const { pid } = system.service('token-service')
  const idleMb = residentMb(pid)
  await readTokens(custody, size)
  const refreshedMs = await refreshDue(redis)
  const busyMb = residentMb(pid)
  const takeDue = await takeDueCall(url)
  await system.service('token-service').stop('SIGTERM')
  const takesMs = await timeTakes(redis, takeDue)

  rows[size.toLocaleString('en')] = {
    'ready, worst ms': Math.round(Math.max(...readyMs)),
    'idle RSS, MB': Math.round(idleMb),
    'busy RSS, MB': Math.round(busyMb),
    [`take ${DUE} due, p50 ms`]: quantile(takesMs, 0.5).toFixed(2),
    'p99 ms': quantile(takesMs, 0.99).toFixed(2),
    [`${DUE} due refreshed, ms`]: Math.round(refreshedMs),
    'Redis, MB': Math.round(await redisMb(redis)),
  }
  console.log(`${size.toLocaleString('en')} realms measured`)
}
console.table(rows)

/**
 * Requests the tokens of as many realms as fit into the service's cache. The responses also prove that the service can
 * decrypt the copied records.
 */
async function readTokens(from: Custody, size: number): Promise<void> {
  for (let n = 0; n < 10_000; n += 1) {
    const name = nameOf((n * 7_919) % size)
    const response = await from.system.call(
      `${from.system.url('token-service')}/credentials/${name}/token`,
    )
    const body = (await response.json()) as { Name?: string }
    if (body.Name !== name) throw new Error(`${name}: ${JSON.stringify(body)}`)
  }
}

/**
 * Makes the credentials of `DUE` realms due for a refresh. Returns the milliseconds until the service has refreshed all
 * of them.
 */
async function refreshDue(store: Redis): Promise<number> {
  // The due time is changed in both the record and the index, because the service checks both.
  for (let n = 0; n < DUE; n += 1)
    await changeRecord(store, keys, nameOf(n), { Expiry: new Date().toISOString() })
  const startedAt = performance.now()
  await makeDue(store)
  // A completed refresh moves the due time by almost a day, whereas a claim moves it by less than a minute. So a realm
  // that is due in more than an hour has been refreshed.
  while ((await store.zcount(DUE_INDEX, '-inf', Date.now() + HOUR_MS)) > 0) {
    if (performance.now() - startedAt > DEADLINE_MS)
      throw new Error('the due realms were not refreshed in time')
    await delay(5)
  }
  return performance.now() - startedAt
}

async function makeDue(store: Redis): Promise<void> {
  const dueAt = Date.now() - 1
  await store.zadd(DUE_INDEX, ...Array.from({ length: DUE }, (_, n) => [dueAt, nameOf(n)]).flat())
}

/** Returns the SHA-1 digest of the Lua script by which the running service claims the realms that are due. */
async function takeDueCall(redisUrl: string): Promise<string> {
  const log = await logCommands(redisUrl)
  await delay(LOOK_MS)
  for (const [command, digest, , key] of await log.end()) {
    if (command?.toLowerCase() === 'evalsha' && key === DUE_INDEX && digest) return digest
  }
  throw new Error('the service did not poll for due realms')
}

/**
 * Returns the durations of claims, in milliseconds. Each claim runs the service's own script with the service's
 * arguments.
 */
async function timeTakes(store: Redis, digest: string): Promise<readonly number[]> {
  const takesMs: number[] = []
  for (let take = 0; take < TAKES; take += 1) {
    await makeDue(store)
    const now = Date.now()
    const startedAt = performance.now()
    const [names] = (await store.evalsha(digest, 1, DUE_INDEX, now, DUE, now + 12 * HOUR_MS)) as [
      string[],
    ]
    takesMs.push(performance.now() - startedAt)
    if (names.length !== DUE)
      throw new Error(`a claim returned ${names.length} of ${DUE} due realms`)
  }
  return takesMs
}

async function redisMb(store: Redis): Promise<number> {
  const info = await store.info('memory')
  return Number(/used_memory:(\d+)/.exec(info)?.[1] ?? 0) / 2 ** 20
}
