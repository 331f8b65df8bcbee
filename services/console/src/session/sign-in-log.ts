/**
 * The sign-ins at this console since its start, for the page Activity. The log of the process contains older sign-ins.
 */
import type { SignInWay } from '../contracts/session.ts'
import type { Session } from './stores.ts'
import type { Sessions } from './sessions.ts'

const MAX_ENTRIES = 1_000

export interface SignInEntry {
  /** The number of the entry, counted from 1. */
  readonly id: number
  /** The time in epoch milliseconds. */
  readonly at: number
  readonly what: 'accepted' | 'rejected' | 'ended'
  /** The person; `null` for a rejected sign-in. */
  readonly user: string | null
  readonly way: SignInWay
}

export interface SignInLog {
  readonly since: number
  add(what: SignInEntry['what'], user: string | null, way: SignInWay): void
  /** Returns the entries that are older than the entry with this id, newest first; without an id, all entries. */
  before(id: number | null): readonly SignInEntry[]
}

export function createSignInLog(now: () => number): SignInLog {
  const entries: SignInEntry[] = []
  let lastId = 0
  return {
    since: now(),
    add(what, user, way) {
      lastId += 1
      entries.unshift({ id: lastId, at: now(), what, user, way })
      if (entries.length > MAX_ENTRIES) entries.pop()
    },
    before: (id) => entries.filter((entry) => id === null || entry.id < id),
  }
}

/**
 * Returns a wrapper of the sessions that logs when a person begins or ends a session. The expiry of a session is not
 * logged.
 */
export const withSignInLog = (sessions: Sessions, log: SignInLog): Sessions => ({
  ...sessions,
  async begin(person) {
    const begun = await sessions.begin(person)
    log.add('accepted', person.user, person.way)
    return begun
  },
  async endOfUser(user) {
    const ended = await sessions.endOfUser(user)
    for (const { way } of ended) log.add('ended', user, way)
    return ended
  },
  async end(session: Session) {
    await sessions.end(session)
    log.add('ended', session.user, session.way)
  },
})
