/** Decides by the present lists what the person of a session may do. */
import type { SignInWay } from '../contracts/session.ts'
import { type OpenIdPeople, roleOf } from './openid-role.ts'
import { lineDigest, type User } from './password.ts'
import type { Session } from './session-store.ts'
import type { Authorized } from './sessions.ts'

export interface PresentLists {
  readonly ways: readonly SignInWay[]
  readonly users: Pick<ReadonlyMap<string, User>, 'get'>
  readonly people: OpenIdPeople
}

/**
 * Returns the present role of the person; `null` if the session must end, because the lists do not name the person any
 * more, the password has changed, or the way to sign in is no longer accepted. A session of the release before has
 * neither the digest of its line nor the entries that named the person: it keeps its name, and its role at the provider.
 */
export function authorize(
  { way, user, role, line, named }: Session,
  { ways, users, people }: PresentLists,
): Authorized | null {
  if (!ways.includes(way)) return null
  if (way === 'link') return { role }
  if (way === 'oidc') {
    const present = named === undefined ? role : roleOf(named, people)
    return present === null ? null : { role: present }
  }
  const known = users.get(user)
  if (known === undefined) return null
  const digest = lineDigest(known)
  return line === undefined || line === digest ? { role: known.role, line: digest } : null
}
