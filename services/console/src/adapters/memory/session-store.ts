import type { Session, SessionStore } from '../../session/session-store.ts'

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
