/**
 * Stores connect links in Redis. Each link is a hash `authorization:link:<id>` that expires at the deletion time of the
 * link. The sorted set `authorization:links` is the index: it contains the position of each link (`positionOf`), a text
 * that begins with the deletion time of the link.
 */
import type { Redis } from 'ioredis'
import { IntegrationError } from '@integration-host/shared/errors'
import { parseJsonAs } from '@integration-host/shared/json'
import {
  ConnectLink,
  type ConnectLinkStore,
  keptUntil,
  MAX_CONNECT_LINKS,
  positionOf,
  timePrefix,
} from '../../authorization/connect-link-store.ts'

const INDEX = 'authorization:links'
const linkKey = (id: string): string => `authorization:link:${id}`

/**
 * Lua: stores a link unless the limit is reached. KEYS: index, link. ARGV: the first position of unexpired links, the
 * limit, the position of the new link, the new link, its deletion time.
 */
const ADD = `
redis.call('ZREMRANGEBYLEX', KEYS[1], '-', '(' .. ARGV[1])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], 0, ARGV[3])
redis.call('HSET', KEYS[2], 'Link', ARGV[4], 'Position', ARGV[3])
redis.call('PEXPIREAT', KEYS[2], ARGV[5])
return 1
`
/**
 * Lua: marks a link as used. KEYS: index, link. ARGV: the new position of the link, the used link, its deletion time.
 */
const USE = `
local position = redis.call('HGET', KEYS[2], 'Position')
if not position or redis.call('HSETNX', KEYS[2], 'Used', '1') == 0 then return 0 end
redis.call('ZREM', KEYS[1], position)
redis.call('ZADD', KEYS[1], 0, ARGV[1])
redis.call('HSET', KEYS[2], 'Link', ARGV[2], 'Position', ARGV[1])
redis.call('PEXPIREAT', KEYS[2], ARGV[3])
return 1
`
/** Lua: deletes a link. KEYS: index, link. */
const REMOVE = `
local position = redis.call('HGET', KEYS[2], 'Position')
if not position then return 0 end
redis.call('ZREM', KEYS[1], position)
return redis.call('DEL', KEYS[2])
`

export function createRedisConnectLinkStore(options: {
  readonly redis: Redis
  readonly ensureUsable: () => void
  readonly now?: () => number
}): ConnectLinkStore {
  const { redis, ensureUsable, now: clock = Date.now } = options

  async function using<T>(call: () => Promise<T>): Promise<T> {
    ensureUsable()
    try {
      return await call()
    } catch (cause) {
      throw new IntegrationError(
        'store_unavailable',
        'the store of connect links is not available',
        {
          cause,
          retryAfterSeconds: 1,
        },
      )
    }
  }
  const run = async (script: string, id: string, ...args: readonly (string | number)[]) =>
    (await using(() => redis.eval(script, 2, INDEX, linkKey(id), ...args))) === 1
  const parsed = (text: string | null): ConnectLink | null =>
    text === null ? null : parseJsonAs(ConnectLink, text)

  return {
    add: (link, now) =>
      run(
        ADD,
        link.id,
        timePrefix(now),
        MAX_CONNECT_LINKS,
        positionOf(link),
        JSON.stringify(link),
        keptUntil(link),
      ),
    async get(id) {
      return parsed(await using(() => redis.hget(linkKey(id), 'Link')))
    },
    use(link, use) {
      const used = { ...link, ...use }
      return run(USE, link.id, positionOf(used), JSON.stringify(used), keptUntil(used))
    },
    async list({ after, limit }) {
      // Positions of expired links stay in the index until the next link is added.
      const least = timePrefix(clock())
      const from = after > least ? `(${after}` : `(${least}`
      const positions = await using(() => redis.zrangebylex(INDEX, from, '+', 'LIMIT', 0, limit))
      const reads = redis.pipeline()
      for (const position of positions)
        reads.hget(linkKey(position.slice(position.indexOf(':') + 1)), 'Link')
      const replies = (await using(() => reads.exec())) ?? []
      // A link may expire or be deleted after its position was read. Such a link is left out.
      return replies
        .map(([, text]) => parsed((text ?? null) as string | null))
        .filter((link) => link !== null)
    },
    remove: (id) => run(REMOVE, id),
  }
}
