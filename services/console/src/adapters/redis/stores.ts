import { roles } from '@integration-host/shared/access/scope'
import { parseJsonAs } from '@integration-host/shared/json'
import type { Redis } from 'ioredis'
import { z } from 'zod'
import { signInWays } from '../../contracts/session.ts'
import {
  type ActionCounter,
  KEPT_SECONDS,
  type RequestStore,
  type Session,
  type SessionStore,
} from '../../session/stores.ts'
import { IntegrationError } from '@integration-host/shared/errors'

const StoredSession = z.object({
  digest: z.string(),
  user: z.string(),
  role: z.enum(roles),
  way: z.enum(signInWays),
  browser: z.string(),
  createdAt: z.number(),
  expiresAt: z.number(),
  // Sessions of the release before do not have the following members, and that release ignores them.
  line: z.string().optional(),
  named: z.array(z.string()).optional(),
  checkedAt: z.number().optional(),
})
const keyOf = (digest: string): string => `console:session:${digest}`
const indexOf = (user: string): string => `console:sessions:${user}`

/** Lua: changes the time of the last use of a session that still exists. KEYS: session. ARGV: the time. */
const TOUCH = `
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'usedAt', ARGV[1]) end
return 1
`
/** Lua: replaces a session that still exists. KEYS: session. ARGV: the session. */
const UPDATE = TOUCH.replace('usedAt', 'session')
const SCAN_COUNT = 1_000

/**
 * Stores the sessions in Redis, so that they survive a restart and several replicas share them. Each session is a hash
 * `console:session:<digest>`, which expires with the session. For each person there is a sorted set with the digests of
 * the sessions, the oldest first. Redis never gets the secret of a session.
 */
export function createRedisSessionStore(redis: Redis): SessionStore {
  async function get(digest: string): Promise<Session | null> {
    const { session = '', usedAt } = await redis.hgetall(keyOf(digest))
    const stored = parseJsonAs(StoredSession, session)
    return stored === null ? null : { ...stored, usedAt: Number(usedAt) }
  }

  return storeErrors({
    get,
    async put({ usedAt, ...session }) {
      const { digest, user, createdAt, expiresAt } = session
      await redis
        .multi()
        .hset(keyOf(digest), { session: JSON.stringify(session), usedAt })
        .pexpireat(keyOf(digest), expiresAt)
        .zadd(indexOf(user), createdAt, digest)
        .pexpireat(indexOf(user), expiresAt)
        .exec()
    },
    async touch(digest, usedAt) {
      await redis.eval(TOUCH, 1, keyOf(digest), usedAt)
    },
    async update(session) {
      // The field `usedAt` of the hash has the time of the last use.
      const text = JSON.stringify({ ...session, usedAt: undefined })
      await redis.eval(UPDATE, 1, keyOf(session.digest), text)
    },
    async remove(digest) {
      const session = await get(digest)
      if (session === null) return
      await redis.multi().zrem(indexOf(session.user), digest).del(keyOf(digest)).exec()
    },
    async ofUser(user) {
      const digests = await redis.zrange(indexOf(user), '0', '-1')
      const sessions = await Promise.all(digests.map(get))
      // Redis itself has deleted the expired sessions.
      const gone = digests.filter((_, index) => sessions[index] === null)
      if (gone.length > 0) await redis.zrem(indexOf(user), ...gone)
      return sessions.filter((session) => session !== null)
    },
    async all() {
      // ioredis does not add the prefix to the pattern and to the keys of SCAN.
      const pattern = (redis.options.keyPrefix ?? '') + keyOf('')
      const digests = new Set<string>()
      let cursor = '0'
      do {
        const [next, keys] = await redis.scan(cursor, 'MATCH', `${pattern}*`, 'COUNT', SCAN_COUNT)
        for (const key of keys) digests.add(key.slice(pattern.length))
        cursor = next
      } while (cursor !== '0')
      const sessions = await Promise.all([...digests].map(get))
      return sessions.filter((session) => session !== null)
    },
  })
}

const requestKey = (name: string): string => `console:request:${name}`

/** Stores the requests in Redis, because a browser may repeat a request at another replica. */
export const createRedisRequestStore = (redis: Redis): RequestStore =>
  storeErrors({
    async begin(name, entry) {
      for (;;) {
        const isNew = (await redis.set(requestKey(name), entry, 'EX', KEPT_SECONDS, 'NX')) !== null
        if (isNew) return null
        const known = await redis.get(requestKey(name))
        // Otherwise the request has been forgotten between the two commands.
        if (known !== null) return known
      }
    },
    async end(name, entry) {
      await redis.set(requestKey(name), entry, 'KEEPTTL', 'XX')
    },
    async forget(name) {
      await redis.del(requestKey(name))
    },
  })

const ACTIONS_KEY = 'console:actions'

/** Counts the actions in Redis, so that each replica notices the actions at the others. */
export const createRedisActionCounter = (redis: Redis): ActionCounter =>
  storeErrors({
    increment: () => redis.incr(ACTIONS_KEY),
    read: async () => Number((await redis.get(ACTIONS_KEY)) ?? 0),
  })

type Functions = Readonly<Record<string, (...parameters: never[]) => Promise<unknown>>>

/**
 * Returns a store that throws `store_unavailable` in place of the errors of Redis, whose text could contain the address
 * of the server.
 */
const storeErrors = <Store extends { readonly [Name in keyof Store]: Functions[string] }>(
  store: Store,
): Store =>
  Object.fromEntries(
    Object.entries<Functions[string]>(store).map(([name, call]) => [
      name,
      async (...parameters: never[]) => {
        try {
          return await call(...parameters)
        } catch (cause) {
          throw new IntegrationError(
            'store_unavailable',
            'The store of the sessions (Redis) does not respond',
            { cause, retryAfterSeconds: 2 },
          )
        }
      },
    ]),
  ) as Store
