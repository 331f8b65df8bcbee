/** Counts the actions in Redis, so that each replica notices the actions at the others. */
import type { Redis } from 'ioredis'
import type { ActionCounter } from '../../session/action-counter.ts'
import { storeErrors } from './store-errors.ts'

const KEY = 'console:actions'

export const createRedisActionCounter = (redis: Redis): ActionCounter =>
  storeErrors({
    increment: () => redis.incr(KEY),
    read: async () => Number((await redis.get(KEY)) ?? 0),
  })
