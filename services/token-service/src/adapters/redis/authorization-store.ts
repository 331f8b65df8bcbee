/**
 * Stores the short-lived records of authorizations in Redis, each with an expiry: the `state` values that were used,
 * the labels for the new credentials, and the claims by which one caller gets the right to exchange a code. The keys
 * contain digests, so that Redis contains neither states nor codes in plain text: `authorization:<sha256(state)>`,
 * `authorization:labels:<sha256(state)>` and `exchange:<sha256(code)>`.
 */
import type { Redis } from 'ioredis'
import { IntegrationError } from '@integration-host/shared/errors'
import type { AuthorizationStore, CodeClaim } from '../../authorization/authorization-store.ts'
import { digest } from '../../authorization/digest.ts'
import type { LabelsChange } from '../../credential/labels.ts'

export function createRedisAuthorizationStore(options: {
  readonly redis: Redis
  readonly ensureUsable: () => void
}): AuthorizationStore {
  const { redis, ensureUsable } = options

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
    async keepLabels(state, labels, ttlMs) {
      await using(() => redis.set(labelsKey(state), JSON.stringify(labels), 'PX', ttlMs))
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
