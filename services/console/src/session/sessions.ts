/**
 * The sessions of the persons who use the console.
 *
 * S1  The secret of a session is 32 random bytes, which only the person's cookie contains. The store has the SHA-256.
 * S2  A session ends `hours` after the sign-in, or `idleMinutes` after the last request that a person caused.
 * S3  A person has at most `MAX_PER_USER` sessions. A further sign-in ends the oldest session.
 * S4  When a session ends, its event streams end too: `onEnd` is called with the digest of the session.
 * S5  Each request is authorized by the present lists (`authorize`). The session of a person whom they no longer name, or
 *     whose password has changed, ends.
 * S6  A session at an OpenID provider is not valid while the provider has not confirmed the person for `CHECK_MS`. It is
 *     valid again after `confirm`, unless it has ended meanwhile.
 */
import { hash, randomBytes } from 'node:crypto'
import { IntegrationError } from '@integration-host/shared/errors'
import type { Role } from '@integration-host/shared/access/scope'
import type { Session, SessionStore } from './stores.ts'

const MAX_PER_USER = 5
/** The time after which an OpenID provider must confirm the person again. */
export const CHECK_MS = 15 * 60_000
/** The time of the last use is stored at most once in this interval, so that not every request causes a write. */
const TOUCH_MS = 30_000

export interface SessionsDeps {
  readonly store: SessionStore
  /** The time in epoch milliseconds. */
  readonly now: () => number
  readonly hours: number
  readonly idleMinutes: number
  readonly authorize: (session: Session) => Authorized | null
}

/** What a person of a session may do now; `line` is the digest of the line in the users file, if there is one. */
export interface Authorized {
  readonly role: Role
  readonly line?: string
}

/** Who signs in, how, and with which browser. */
export type Person = Pick<Session, 'user' | 'role' | 'way' | 'browser' | 'line' | 'named'>

export interface Sessions {
  /** Begins a session. Returns the session and the secret for the cookie. */
  begin(person: Person): Promise<{ readonly session: Session; readonly secret: string }>
  /**
   * Returns the valid session of a cookie, with the present role; `null` if there is none. Records the use of the
   * session, unless an open page has sent the request by itself.
   *
   * @throws {IntegrationError} `sign_in_check_needed`: the OpenID provider must confirm the person first.
   */
  use(secret: string | undefined, isUnattended?: boolean): Promise<Session | null>
  /**
   * Returns whether a session is still valid. This check does not count as a use of the session. Calls the listeners of
   * `onEnd` if the session is not valid.
   */
  isValid(digest: string): Promise<boolean>
  /** Returns the epoch milliseconds until which the provider must confirm a session; `null` if it need not. */
  checkAt(session: Session): number | null
  /** Returns the session of a cookie that an OpenID provider can confirm again; `null` if there is none. */
  toConfirm(secret: string | undefined): Promise<Session | null>
  /**
   * Records that the OpenID provider has confirmed the person of a session. Returns whether this was a session of this
   * person that has not ended.
   */
  confirm(digest: string, person: Pick<Session, 'user' | 'role' | 'named'>): Promise<boolean>
  /** Ends a session, if it has not ended. */
  endByDigest(digest: string): Promise<void>
  end(session: Session): Promise<void>
  /** Ends all sessions of a person, whichever way the person has signed in. Returns these sessions. */
  endOfUser(user: string): Promise<readonly Session[]>
  /** Returns the sessions of all persons, also those whose person an OpenID provider must confirm first. */
  all(): Promise<readonly Session[]>
  /** Returns the valid sessions of the person to whom this session belongs, the newest first. */
  ofSamePerson(session: Session): Promise<readonly Session[]>
  /**
   * Registers a function that is called when a session is ended. Returns a function that removes the registered one.
   */
  onEnd(listener: (digest: string) => void): () => void
}

const digestOf = (secret: string): string => hash('sha256', secret, 'hex')

export function createSessions(deps: SessionsDeps): Sessions {
  const { store, now, hours, idleMinutes } = deps
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

  const checkAt = ({ way, checkedAt, createdAt }: Session): number | null =>
    way === 'oidc' ? (checkedAt ?? createdAt) + CHECK_MS : null
  const needsCheck = (session: Session): boolean => now() >= (checkAt(session) ?? Infinity)

  /** Returns a session with the present role; `null` if it has ended. */
  function present(session: Session): Session | null {
    const authorized = isOver(session) ? null : deps.authorize(session)
    return authorized === null ? null : { ...session, ...authorized }
  }

  /** Returns a session that has not ended, with the present role. It may need a check. */
  async function current(digest: string): Promise<Session | null> {
    const session = await store.get(digest)
    if (session === null) return null
    const known = present(session)
    if (known === null) await end(session)
    // A session of the release before is bound to the line of the users file at its first use.
    else if (session.line !== known.line) await store.update({ ...session, line: known.line })
    return known
  }

  const currentOf = async (secret: string | undefined): Promise<Session | null> =>
    secret === undefined ? null : current(digestOf(secret))

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
        ...(person.way === 'oidc' && { checkedAt: at }),
      }
      await store.put(session)
      const others = await store.ofUser(person.user)
      for (const oldest of others.slice(0, Math.max(0, others.length - MAX_PER_USER)))
        await end(oldest)
      return { session, secret }
    },
    async use(secret, isUnattended = false) {
      const session = await currentOf(secret)
      if (session !== null && needsCheck(session))
        throw new IntegrationError(
          'sign_in_check_needed',
          'The sign-in provider must confirm this session',
        )
      if (session !== null && !isUnattended && now() - session.usedAt >= TOUCH_MS)
        await store.touch(session.digest, now())
      return session
    },
    async isValid(digest) {
      const session = await current(digest)
      const isOwn = session !== null && !needsCheck(session)
      // If another replica has ended the session, the listeners of this replica have not been called yet.
      if (!isOwn) report(digest)
      return isOwn
    },
    checkAt,
    async toConfirm(secret) {
      const session = await currentOf(secret)
      return session?.way === 'oidc' ? session : null
    },
    async confirm(digest, { user, role, named }) {
      const session = await current(digest)
      if (session?.user !== user || session.way !== 'oidc') return false
      await store.update({ ...session, role, named, checkedAt: now() })
      return true
    },
    async endByDigest(digest) {
      const session = await store.get(digest)
      if (session !== null) await end(session)
    },
    end,
    async endOfUser(user) {
      const all = await store.ofUser(user)
      for (const session of all) await end(session)
      return all
    },
    all: async () => (await store.all()).map(present).filter((session) => session !== null),
    async ofSamePerson({ user, way }) {
      const all = (await store.ofUser(user)).map(present).filter((session) => session !== null)
      return all.filter((session) => session.way === way).toReversed()
    },
    onEnd(listener) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
  }
}
