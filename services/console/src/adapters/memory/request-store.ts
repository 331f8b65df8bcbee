import { KEPT_SECONDS, type RequestStore } from '../../session/request-store.ts'

/** The maximum number of requests. A further request removes the oldest one. */
const MAX_REQUESTS = 1_000

/** Stores the requests in the memory of this process. `now` returns milliseconds. */
export function createMemoryRequestStore(now: () => number): RequestStore {
  const requests = new Map<string, { readonly entry: string; readonly expiresAt: number }>()

  function removeExpired(): void {
    // The first entry of the map is the oldest one.
    for (const [name, { expiresAt }] of requests) {
      if (now() < expiresAt) return
      requests.delete(name)
    }
  }

  return {
    async begin(name, entry) {
      removeExpired()
      const known = requests.get(name)
      if (known !== undefined) return known.entry
      const [oldest] = requests.keys()
      if (requests.size >= MAX_REQUESTS && oldest !== undefined) requests.delete(oldest)
      requests.set(name, { entry, expiresAt: now() + KEPT_SECONDS * 1_000 })
      return null
    },
    async end(name, entry) {
      const begun = requests.get(name)
      if (begun !== undefined) requests.set(name, { ...begun, entry })
    },
    async forget(name) {
      requests.delete(name)
    },
  }
}
