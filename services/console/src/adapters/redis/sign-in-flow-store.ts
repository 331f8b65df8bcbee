/** Stores in Redis the sign-ins that have begun, because the callback of the provider may reach another replica. */
import { parseJsonAs } from '@integration-host/shared/json'
import type { Redis } from 'ioredis'
import { z } from 'zod'
import { FLOW_SECONDS, type SignInFlowStore } from '../../session/sign-in-flow-store.ts'
import { storeErrors } from './store-errors.ts'

const StoredFlow = z.object({
  state: z.string(),
  nonce: z.string(),
  verifier: z.string(),
  returnTo: z.string(),
})
const keyOf = (digest: string): string => `console:sign-in:${digest}`

export const createRedisSignInFlowStore = (redis: Redis): SignInFlowStore =>
  storeErrors({
    async put(digest, flow) {
      await redis.set(keyOf(digest), JSON.stringify(flow), 'EX', FLOW_SECONDS)
    },
    async take(digest) {
      const flow = await redis.getdel(keyOf(digest))
      return flow === null ? null : parseJsonAs(StoredFlow, flow)
    },
  })
