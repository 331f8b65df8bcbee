/**
 * Stores connect links in Redis. Each link is a hash `authorization:link:<id>` that expires at the deletion time of the
 * link. The sorted set `authorization:links` is the index: it contains the position of each link (`positionOf`), a text
 * that begins with the deletion time of the link. `authorization:links:<key id>` contains the positions of the links of
 * one key.
 */
import type { Redis } from 'ioredis'
import { parseJsonAs } from '@integration-host/shared/json'
import {
  ConnectLink,
  type ConnectLinkStore,
  CONNECT_LINKS,
  keptUntil,
  positionOf,
  timePrefix,
  tooManyLinksOfKey,
} from '../../authorization/connect-link-store.ts'
import { createUsing } from './commands.ts'

const INDEX = 'authorization:links'
const linkKey = (id: string): string => `authorization:link:${id}`

/**
 * Lua: stores a link unless a limit is reached. KEYS: link, index, and the index of the key if the link has one. ARGV:
 * the first position of unexpired links, the position of the new link, the new link, its deletion time, and the limit of
 * each index. Returns 1, or 0 or -1 if the first or second index is full.
 */
const ADD = `
for index = 2, #KEYS do
  redis.call('ZREMRANGEBYLEX', KEYS[index], '-', '(' .. ARGV[1])
  if redis.call('ZCARD', KEYS[index]) >= tonumber(ARGV[3 + index]) then return 2 - index end
end
for index = 2, #KEYS do redis.call('ZADD', KEYS[index], 0, ARGV[2]) end
redis.call('HSET', KEYS[1], 'Link', ARGV[3], 'Position', ARGV[2])
redis.call('PEXPIREAT', KEYS[1], ARGV[4])
return 1
`
/**
 * Lua: marks a link as used. KEYS: link, indexes. ARGV: the new position of the link, the used link, its deletion time.
 */
const USE = `
local position = redis.call('HGET', KEYS[1], 'Position')
if not position or redis.call('HSETNX', KEYS[1], 'Used', '1') == 0 then return 0 end
for index = 2, #KEYS do
  redis.call('ZREM', KEYS[index], position)
  redis.call('ZADD', KEYS[index], 0, ARGV[1])
end
redis.call('HSET', KEYS[1], 'Link', ARGV[2], 'Position', ARGV[1])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
return 1
`
/** Lua: deletes a link. KEYS: link, indexes. */
const REMOVE = `
local position = redis.call('HGET', KEYS[1], 'Position')
if not position then return 0 end
for index = 2, #KEYS do redis.call('ZREM', KEYS[index], position) end
return redis.call('DEL', KEYS[1])
`

export function createRedisConnectLinkStore(options: {
  readonly redis: Redis
  readonly ensureUsable: () => void
  readonly now?: () => number
}): ConnectLinkStore {
  const { redis, ensureUsable, now: clock = Date.now } = options

  const using = createUsing('store of connect links', ensureUsable)
  const run = (
    script: string,
    { id, keyId }: Pick<ConnectLink, 'id' | 'keyId'>,
    ...args: readonly (string | number)[]
  ) => {
    const keys = [linkKey(id), INDEX, ...(keyId === null ? [] : [`${INDEX}:${keyId}`])]
    return using(() => redis.eval(script, keys.length, ...keys, ...args))
  }
  const parsed = (text: string | null): ConnectLink | null =>
    text === null ? null : parseJsonAs(ConnectLink, text)

  return {
    async add(link, now) {
      const added = await run(
        ADD,
        link,
        timePrefix(now),
        positionOf(link),
        JSON.stringify(link),
        keptUntil(link),
        CONNECT_LINKS.total,
        CONNECT_LINKS.perKey,
      )
      if (added === -1) throw tooManyLinksOfKey()
      return added === 1
    },
    async get(id) {
      return parsed(await using(() => redis.hget(linkKey(id), 'Link')))
    },
    async use(link, use) {
      const used = { ...link, ...use }
      return (await run(USE, link, positionOf(used), JSON.stringify(used), keptUntil(used))) === 1
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
    remove: async (link) => (await run(REMOVE, link)) === 1,
  }
}
