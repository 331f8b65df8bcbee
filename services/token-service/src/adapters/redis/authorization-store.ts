/**
 * Authorization requests and code claims in Redis, each with its expiry: `authorization:<sha256(state)>` and
 * `exchange:<sha256(code)>`. Neither state nor code can be read there, and the PKCE verifier is encrypted.
 */
import type { Redis } from 'ioredis'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import { IntegrationError } from '@integration-host/shared/errors'
import type {
  AuthorizationRequest,
  AuthorizationStore,
  CodeClaim,
} from '../../authorization/authorization-store.ts'
import { digest } from '../../authorization/digest.ts'

export function createRedisAuthorizationStore(options: {
  readonly redis: Redis
  readonly keys: KeyRing
  readonly ensureUsable: () => void
}): AuthorizationStore {
  const { redis, keys, ensureUsable } = options

  async function using<T>(call: () => Promise<T>): Promise<T> {
    ensureUsable()
    try {
      return await call()
    } catch (cause) {
      throw new IntegrationError('store_unavailable', 'the authorization store is not available', {
        cause,
        retryAfterSeconds: 1,
      })
    }
  }
  const stateKey = (state: string): string => `authorization:${digest(state)}`
  const codeKey = (code: string): string => `exchange:${digest(code)}`
  const placeOf = (key: string) => ({ name: key, field: 'request', version: 1 })

  return {
    async begin(state, request, ttlMs) {
      const key = stateKey(state)
      const sealed = keys.seal(JSON.stringify(request), placeOf(key))
      await using(() => redis.set(key, sealed, 'PX', ttlMs))
    },
    async consume(state) {
      const key = stateKey(state)
      const sealed = await using(() => redis.getdel(key))
      if (sealed === null) return null
      try {
        return JSON.parse(keys.open(sealed, placeOf(key))) as AuthorizationRequest
      } catch (error) {
        // The key that encrypted the request was removed from the key ring since. The state is treated as expired.
        if (error instanceof DecryptionError) return null
        throw error
      }
    },
    async claimCode(code, claim, ttlMs) {
      const key = codeKey(code)
      const text = JSON.stringify(claim)
      for (;;) {
        if ((await using(() => redis.set(key, text, 'PX', ttlMs, 'NX'))) !== null) return null
        const first = await using(() => redis.get(key))
        if (first !== null) return JSON.parse(first) as CodeClaim
        // The claim expired between the two commands: try again.
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
