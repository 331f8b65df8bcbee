import type { SignInWay } from '../contracts/session.ts'
import type { Role } from '@integration-host/shared/access/user-role'

/** A session as it is stored. The times are epoch milliseconds. */
export interface Session {
  /** The SHA-256 of the cookie's secret, in hex digits. The secret itself is stored nowhere. */
  readonly digest: string
  readonly user: string
  readonly role: Role
  /**
   * How the person signed in. Two persons may have the same name with different ways to sign in.
   */
  readonly way: SignInWay
  /** A name such as `Firefox on Linux`, by which the person recognizes the session. */
  readonly browser: string
  readonly createdAt: number
  /** The session ends at this time, even if it is in use. */
  readonly expiresAt: number
  /** The time of the last request that a person caused. The event stream does not count. */
  readonly usedAt: number
}

/** The port to the store of the sessions. */
export interface SessionStore {
  /** Returns the session; `null` if there is none. The session may have expired. */
  get(digest: string): Promise<Session | null>
  /** Stores the session. Replaces the stored session with the same digest, if there is one. */
  put(session: Session): Promise<void>
  /** Changes the time of the last use. A session that was removed meanwhile is not stored again. */
  touch(digest: string, usedAt: number): Promise<void>
  remove(digest: string): Promise<void>
  /** Returns the sessions of a person, the oldest first. */
  ofUser(user: string): Promise<readonly Session[]>
}
