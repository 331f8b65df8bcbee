/** Authorization requests and code claims in this process: right where one process is all there is. */
import type {
  AuthorizationRequest,
  AuthorizationStore,
  CodeClaim,
} from '../../authorization/authorization-store.ts'
import { digest } from '../../authorization/digest.ts'

const LIMIT = 10_000

export function createMemoryAuthorizationStore(now: () => number = Date.now): AuthorizationStore {
  const requests = createShelf<AuthorizationRequest>(now)
  const claims = createShelf<CodeClaim>(now)
  return {
    async begin(state, request, ttlMs) {
      requests.put(digest(state), request, ttlMs)
    },
    async take(state) {
      const request = requests.get(digest(state))
      requests.drop(digest(state))
      return request
    },
    async claimCode(code, claim, ttlMs) {
      const first = claims.get(digest(code))
      if (first === null) claims.put(digest(code), claim, ttlMs)
      return first
    },
    async readCode(code) {
      return claims.get(digest(code))
    },
    async settleCode(code, claim, ttlMs) {
      claims.put(digest(code), claim, ttlMs)
    },
  }
}

/** Things with an expiry; the oldest give way when there are too many. */
function createShelf<T>(now: () => number) {
  const things = new Map<string, { readonly value: T; readonly until: number }>()
  return {
    get(key: string): T | null {
      const thing = things.get(key)
      return thing === undefined || thing.until <= now() ? null : thing.value
    },
    put(key: string, value: T, ttlMs: number): void {
      things.delete(key)
      for (const [oldest, { until }] of things) {
        if (until > now() && things.size < LIMIT) break
        things.delete(oldest)
      }
      things.set(key, { value, until: now() + ttlMs })
    },
    drop(key: string): void {
      things.delete(key)
    },
  }
}
