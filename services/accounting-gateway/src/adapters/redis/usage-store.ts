import type { Redis } from 'ioredis'
import { type CallCounts, callKinds, type UsageStore } from '../../usage/usage.ts'

/** Redis deletes the counts of a month if nothing was added to them for this time. */
const KEPT_SECONDS = 400 * 86_400
/** The maximum number of companies in one Redis transaction. A longer transaction would block other clients. */
const BATCH = 500

/**
 * The counts of all gateway replicas. Each month has three keys: a hash of the counts by realm and kind, a hash of the
 * sums by kind, and a sorted set of the realms.
 */
export function createRedisUsageStore(redis: Redis): UsageStore {
  // The braces put all keys of a month into one hash slot of a Redis Cluster.
  const keys = (month: string) => ({
    calls: `usage:{${month}}:calls`,
    total: `usage:{${month}}:total`,
    realms: `usage:{${month}}:realms`,
  })

  return {
    async add(month, usage) {
      const { calls, total, realms } = keys(month)
      for (let start = 0; start < usage.length; start += BATCH) {
        const transaction = redis.multi()
        for (const { realm, calls: counts } of usage.slice(start, start + BATCH)) {
          transaction.zadd(realms, 0, realm)
          for (const kind of callKinds) {
            const count = counts[kind]
            if (count === undefined) continue
            transaction.hincrby(calls, fieldOf(realm, kind), count)
            transaction.hincrby(total, kind, count)
          }
        }
        for (const key of [calls, total, realms]) transaction.expire(key, KEPT_SECONDS)
        const replies = await transaction.exec()
        const failure = replies?.find(([error]) => error !== null)?.[0]
        if (failure) throw failure
      }
    },
    total: async (month) => countsOf(await redis.hmget(keys(month).total, ...callKinds)),
    async list(month, { after, limit }) {
      const { calls, realms } = keys(month)
      const from = after === '' ? '-' : `(${after}`
      const found = await redis.zrange(realms, from, '+', 'BYLEX', 'LIMIT', 0, limit)
      if (found.length === 0) return []
      const fields = found.flatMap((realm) => callKinds.map((kind) => fieldOf(realm, kind)))
      const values = await redis.hmget(calls, ...fields)
      return found.map((realm, index) => ({
        realm,
        calls: countsOf(values.slice(index * callKinds.length, (index + 1) * callKinds.length)),
      }))
    },
    async find(month, realm) {
      const fields = callKinds.map((kind) => fieldOf(realm, kind))
      return countsOf(await redis.hmget(keys(month).calls, ...fields))
    },
  }
}

const fieldOf = (realm: string, kind: string): string => `${realm}/${kind}`

/** @param values the values of `callKinds`, in their order */
const countsOf = (values: readonly (string | null)[]): CallCounts =>
  Object.fromEntries(
    callKinds.flatMap((kind, index) => {
      const value = values[index] ?? null
      return value === null ? [] : [[kind, Number(value)]]
    }),
  )
