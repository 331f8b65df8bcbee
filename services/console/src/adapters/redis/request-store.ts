/** Stores the requests in Redis, because a browser may repeat a request at another replica. */
import type { Redis } from 'ioredis'
import { KEPT_SECONDS, type RequestStore } from '../../session/request-store.ts'
import { storeErrors } from './store-errors.ts'

const keyOf = (name: string): string => `console:request:${name}`

export const createRedisRequestStore = (redis: Redis): RequestStore =>
  storeErrors({
    async begin(name, entry) {
      for (;;) {
        const isNew = (await redis.set(keyOf(name), entry, 'EX', KEPT_SECONDS, 'NX')) !== null
        if (isNew) return null
        const known = await redis.get(keyOf(name))
        // Otherwise the request has been forgotten between the two commands.
        if (known !== null) return known
      }
    },
    async end(name, entry) {
      await redis.set(keyOf(name), entry, 'KEEPTTL', 'XX')
    },
    async forget(name) {
      await redis.del(keyOf(name))
    },
  })
