import {
  KEPT_SECONDS,
  type RequestStore,
  type Session,
  type SessionStore,
} from '../../session/stores.ts'

/** The maximum number of sessions. A person has at most five, so only many persons together can reach this number. */
const MAX_SESSIONS = 10_000

/** Stores the sessions in the memory of this process. The sessions end when the process ends. */
export function createMemorySessionStore(now: () => number): SessionStore {
  const sessions = new Map<string, Session>()

  function removeExpired(): void {
    for (const [digest, { expiresAt }] of sessions) if (expiresAt <= now()) sessions.delete(digest)
    const [oldest] = sessions.keys()
    if (sessions.size >= MAX_SESSIONS && oldest !== undefined) sessions.delete(oldest)
  }

  return {
    get: async (digest) => sessions.get(digest) ?? null,
    async put(session) {
      removeExpired()
      sessions.set(session.digest, session)
    },
    async touch(digest, usedAt) {
      const session = sessions.get(digest)
      if (session !== undefined) sessions.set(digest, { ...session, usedAt })
    },
    async update(session) {
      const known = sessions.get(session.digest)
      if (known !== undefined) sessions.set(session.digest, { ...session, usedAt: known.usedAt })
    },
    async remove(digest) {
      sessions.delete(digest)
    },
    ofUser: async (user) =>
      [...sessions.values()]
        .filter((session) => session.user === user)
        .toSorted((one, other) => one.createdAt - other.createdAt),
    all: async () => [...sessions.values()],
  }
}

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
