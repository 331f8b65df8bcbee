import type { SignInWay } from '../contracts/session.ts'
import type { Role } from '@integration-host/shared/access/scope'

/** A session as it is stored. The times are epoch milliseconds. */
export interface Session {
  /** The SHA-256 of the cookie's secret, in hex digits. The secret itself is stored nowhere. */
  readonly digest: string
  readonly user: string
  /** The role at the sign-in. What the person may do is decided for each request. */
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
  /**
   * The digest of the password's line in the users file at the sign-in. `undefined` for other ways to sign in, and for a
   * session of the release before.
   */
  readonly line?: string | undefined
  /**
   * The entries of OIDC_OPERATORS and OIDC_VIEWERS that named the person when the provider was last asked. `undefined`
   * as for `line`.
   */
  readonly named?: readonly string[] | undefined
  /** When the OpenID provider last confirmed the person. `undefined` as for `line`: then it is the sign-in. */
  readonly checkedAt?: number | undefined
}

/** The port to the store of the sessions. */
export interface SessionStore {
  /** Returns the session; `null` if there is none. The session may have expired. */
  get(digest: string): Promise<Session | null>
  /** Stores the session. Replaces the stored session with the same digest, if there is one. */
  put(session: Session): Promise<void>
  /** Changes the time of the last use. A session that was removed meanwhile is not stored again. */
  touch(digest: string, usedAt: number): Promise<void>
  /** Replaces a session, but not the time of its last use. A session that was removed meanwhile is not stored again. */
  update(session: Session): Promise<void>
  remove(digest: string): Promise<void>
  /** Returns the sessions of a person, the oldest first. */
  ofUser(user: string): Promise<readonly Session[]>
  /** Returns the sessions of all persons, in no particular order. */
  all(): Promise<readonly Session[]>
}

/**
 * The port to the requests with an `Idempotency-Key` that have begun within the last `KEPT_SECONDS`. Each has a unique
 * name, and an entry whose content the store does not interpret.
 */
export interface RequestStore {
  /** Adds the entry of a request that begins. Returns `null`, or the existing entry if the name is already known. */
  begin(name: string, entry: string): Promise<string | null>
  /** Replaces the entry of a request that has ended. Does nothing if the name is not known any more. */
  end(name: string, entry: string): Promise<void>
  /** Removes a request, so that a repetition is executed. */
  forget(name: string): Promise<void>
}

export const KEPT_SECONDS = 600

/** The port to the number of the actions of persons at all replicas of the console. */
export interface ActionCounter {
  /** Adds one action, and returns the new number. */
  increment(): Promise<number>
  /** Returns the number; 0 if there was no action. */
  read(): Promise<number>
}
