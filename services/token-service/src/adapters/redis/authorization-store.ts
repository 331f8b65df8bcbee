/**
 * Stores the short-lived records of authorizations in Redis, each with an expiry: the `state` values that were used,
 * the labels for the new credentials, and the claims by which one caller gets the right to exchange a code. The keys
 * contain digests, so that Redis contains neither states nor codes in plain text: `authorization:<sha256(state)>`,
 * `authorization:labels:<sha256(state)>` and `exchange:<sha256(code)>`. The sorted sets `authorization:pending` and
 * `authorization:pending:<key id>` contain the digests of the states with labels by their expiry, to count them.
 */
import type { Redis } from 'ioredis'
import {
  type AuthorizationStore,
  type CodeClaim,
  digest,
  PENDING_LABELS,
  tooManyPending,
  tooManyPendingOfKey,
} from '../../authorization/authorization-store.ts'
import type { LabelsChange } from '../../credential/labels.ts'
import { createUsing } from './commands.ts'

const PENDING = 'authorization:pending'

/**
 * Lua: stores the labels of a state unless a limit is reached. KEYS: the labels, the pending states of all keys, and
 * those of the key, if the key has a share. ARGV: the labels, the time to live in milliseconds, the digest of the state,
 * now, and the limit of each list of states. Returns the number of the list that is full; 0 if the labels are stored.
 */
const KEEP_LABELS = `
for list = 2, #KEYS do
  redis.call('ZREMRANGEBYSCORE', KEYS[list], '-inf', ARGV[4])
  if redis.call('ZCARD', KEYS[list]) >= tonumber(ARGV[3 + list]) then return list - 1 end
end
for list = 2, #KEYS do
  redis.call('ZADD', KEYS[list], ARGV[4] + ARGV[2], ARGV[3])
  if redis.call('PTTL', KEYS[list]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[list], ARGV[2]) end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 0
`

export function createRedisAuthorizationStore(options: {
  readonly redis: Redis
  readonly ensureUsable: () => void
}): AuthorizationStore {
  const { redis, ensureUsable } = options

  const using = createUsing('authorization store', ensureUsable)
  const stateKey = (state: string): string => `authorization:${digest(state)}`
  const labelsKey = (state: string): string => `authorization:labels:${digest(state)}`
  const codeKey = (code: string): string => `exchange:${digest(code)}`

  return {
    async useState(state, ttlMs) {
      const key = stateKey(state)
      return (await using(() => redis.set(key, '', 'PX', ttlMs, 'NX'))) !== null
    },
    async isStateUsed(state) {
      return (await using(() => redis.exists(stateKey(state)))) > 0
    },
    async keepLabels(state, labels, ttlMs, shareOf) {
      const lists = shareOf === null ? [PENDING] : [PENDING, `${PENDING}:${shareOf}`]
      const full = await using(() =>
        redis.eval(
          KEEP_LABELS,
          1 + lists.length,
          labelsKey(state),
          ...lists,
          JSON.stringify(labels),
          ttlMs,
          digest(state),
          Date.now(),
          PENDING_LABELS.total,
          PENDING_LABELS.perKey,
        ),
      )
      if (full === 1) throw tooManyPending()
      if (full === 2) throw tooManyPendingOfKey()
    },
    async readLabels(state) {
      const text = await using(() => redis.get(labelsKey(state)))
      return text === null ? null : (JSON.parse(text) as LabelsChange)
    },
    async admitHint(name, intervalMs) {
      const key = `authorization:hint:${name}`
      return (await using(() => redis.set(key, '', 'PX', intervalMs, 'NX'))) !== null
    },
    async claimCode(code, claim, ttlMs) {
      const key = codeKey(code)
      const text = JSON.stringify(claim)
      for (;;) {
        if ((await using(() => redis.set(key, text, 'PX', ttlMs, 'NX'))) !== null) return null
        const first = await using(() => redis.get(key))
        if (first !== null) return JSON.parse(first) as CodeClaim
        // SET failed because of an earlier claim, and this claim expired before GET could read it. Both commands are
        // therefore repeated.
      }
    },
    async readCode(code) {
      const text = await using(() => redis.get(codeKey(code)))
      return text === null ? null : (JSON.parse(text) as CodeClaim)
    },
    async settleCode(code, claim, ttlMs) {
      await using(() => redis.set(codeKey(code), JSON.stringify(claim), 'PX', ttlMs))
    },
  }
}
