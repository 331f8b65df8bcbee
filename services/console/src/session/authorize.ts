/** Decides by the present lists who may sign in with OpenID Connect, and what the person of a session may do. */
import { type Role, roles } from '@integration-host/shared/access/scope'
import type { SignInWay } from '../contracts/session.ts'
import { lineDigest, type User } from './password.ts'
import type { Session } from './stores.ts'
import type { Authorized } from './sessions.ts'

/** The claims of a verified id token that identify a person. */
export interface PersonClaims {
  readonly sub: string
  readonly email?: unknown
  readonly email_verified?: unknown
  readonly [claim: string]: unknown
}

export interface OpenIdPeople {
  /** The e-mail addresses, `group:name` and `oidc:subject` of the setting. The issuer is always that of OIDC_ISSUER. */
  readonly operators: readonly string[]
  readonly viewers: readonly string[]
  /** The claim with the groups of the person. Its value is an array of names, or one name. */
  readonly groupsClaim: string
}

const GROUP = 'group:'
const SUBJECT = 'oidc:'
/** The characters that the header `Acting-For` can contain. */
const USER = /^[\x21-\x7e]{1,100}$/

/** Returns whether the text is an entry of OIDC_OPERATORS or OIDC_VIEWERS. */
export const isListEntry = (entry: string): boolean => {
  const prefix = [GROUP, SUBJECT].find((one) => entry.startsWith(one))
  return prefix === undefined ? isAddress(entry) : entry.length > prefix.length
}

/**
 * Returns whether the text is an ASCII e-mail address. Other characters may look like ASCII letters, and some become
 * ASCII letters in lower case: U+212A, the Kelvin sign, becomes `k`.
 */
const isAddress = (text: unknown): text is string =>
  typeof text === 'string' && /^[\x21-\x3f\x41-\x7e]+@[\x21-\x3f\x41-\x7e]+$/.test(text)

/**
 * Returns the user name and the role of a person, and the entries that name the person; `null` if there are none. The
 * user name is the e-mail address if it is ASCII and the provider has verified it. Otherwise, the user name is `oidc:`
 * followed by the claim `sub`. No other
 * claim becomes the user name, because the person can choose the value of claims such as `preferred_username`.
 */
export function personOf(
  claims: PersonClaims,
  people: OpenIdPeople,
): { readonly user: string; readonly role: Role; readonly named: readonly string[] } | null {
  const { operators, viewers, groupsClaim } = people
  const email =
    isAddress(claims.email) && claims.email_verified === true ? claims.email.toLowerCase() : null
  const groups = [claims[groupsClaim]].flat().filter((group) => typeof group === 'string')
  const named = [...operators, ...viewers].filter((entry) =>
    entry.startsWith(GROUP)
      ? groups.includes(entry.slice(GROUP.length))
      : entry === `${SUBJECT}${claims.sub}` || entry.toLowerCase() === email,
  )
  const role = roleOf(named, people)
  const user = email ?? `${SUBJECT}${claims.sub}`
  return role === null || !USER.test(user) ? null : { user, role, named }
}

/** Returns the role of a person whom these entries name; `null` if the lists have none of them. */
function roleOf(
  named: readonly string[],
  { operators, viewers }: Pick<OpenIdPeople, 'operators' | 'viewers'>,
): Role | null {
  const isIn = (list: readonly string[]): boolean => named.some((entry) => list.includes(entry))
  return isIn(operators) ? 'operator' : isIn(viewers) ? 'viewer' : null
}

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

/** Returns whether the role `role` includes the permissions of `needed`. */
export const allows = (role: Role, needed: Role): boolean =>
  roles.indexOf(role) >= roles.indexOf(needed)
