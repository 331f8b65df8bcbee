/**
 * The sessions of the persons who use the console.
 *
 * S1  The secret of a session is 32 random bytes, which only the person's cookie contains. The store has the SHA-256.
 * S2  A session ends `hours` after the sign-in, or `idleMinutes` after the last request that a person caused.
 * S3  A person has at most `MAX_PER_USER` sessions. A further sign-in ends the oldest session.
 * S4  When a session ends, its event streams end too: `onEnd` is called with the digest of the session.
 */
import { hash, randomBytes } from 'node:crypto'
import type { Session, SessionStore } from './session-store.ts'

const MAX_PER_USER = 5
/** The time of the last use is stored at most once in this interval, so that not every request causes a write. */
const TOUCH_MS = 30_000

export interface SessionsDeps {
  readonly store: SessionStore
  /** The time in epoch milliseconds. */
  readonly now: () => number
  readonly hours: number
  readonly idleMinutes: number
}

/** Who signs in, how, and with which browser. */
export type Person = Pick<Session, 'user' | 'role' | 'way' | 'browser'>

export interface Sessions {
  /** Begins a session. Returns the session and the secret for the cookie. */
  begin(person: Person): Promise<{ readonly session: Session; readonly secret: string }>
  /**
   * Returns the valid session of a cookie; `null` if there is none. Records the use of the session, unless an open page
   * has sent the request by itself.
   */
  use(secret: string | undefined, isUnattended?: boolean): Promise<Session | null>
  /**
   * Returns whether a session is still valid. This check does not count as a use of the session. Calls the listeners of
   * `onEnd` if the session is not valid.
   */
  isValid(digest: string): Promise<boolean>
  end(session: Session): Promise<void>
  /** Returns the valid sessions of the person to whom this session belongs, the newest first. */
  ofSamePerson(session: Session): Promise<readonly Session[]>
  /**
   * Registers a function that is called when a session is ended. Returns a function that removes the registered one.
   */
  onEnd(listener: (digest: string) => void): () => void
}

const digestOf = (secret: string): string => hash('sha256', secret, 'hex')

export function createSessions({ store, now, hours, idleMinutes }: SessionsDeps): Sessions {
  const listeners = new Set<(digest: string) => void>()
  const isOver = ({ expiresAt, usedAt }: Session): boolean =>
    now() >= expiresAt || now() >= usedAt + idleMinutes * 60_000

  function report(digest: string): void {
    for (const listener of listeners) listener(digest)
  }

  async function end({ digest }: Session): Promise<void> {
    await store.remove(digest)
    report(digest)
  }

  async function valid(digest: string): Promise<Session | null> {
    const session = await store.get(digest)
    if (session === null) return null
    if (!isOver(session)) return session
    await end(session)
    return null
  }

  return {
    async begin(person) {
      const secret = randomBytes(32).toString('base64url')
      const at = now()
      const session: Session = {
        digest: digestOf(secret),
        ...person,
        createdAt: at,
        expiresAt: at + hours * 3_600_000,
        usedAt: at,
      }
      await store.put(session)
      const others = await store.ofUser(person.user)
      for (const oldest of others.slice(0, Math.max(0, others.length - MAX_PER_USER)))
        await end(oldest)
      return { session, secret }
    },
    async use(secret, isUnattended = false) {
      if (secret === undefined) return null
      const session = await valid(digestOf(secret))
      if (session !== null && !isUnattended && now() - session.usedAt >= TOUCH_MS)
        await store.touch(session.digest, now())
      return session
    },
    async isValid(digest) {
      const isOwn = (await valid(digest)) !== null
      // If another replica has ended the session, the listeners of this replica have not been called yet.
      if (!isOwn) report(digest)
      return isOwn
    },
    end,
    async ofSamePerson({ user, way }) {
      const all = await store.ofUser(user)
      return all.filter((session) => session.way === way && !isOver(session)).toReversed()
    },
    onEnd(listener) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
  }
}
