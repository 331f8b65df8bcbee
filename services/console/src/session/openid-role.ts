/** Determines the role of a person who signs in with OpenID Connect. */
import type { Role } from '@integration-host/shared/access/user-role'

/** The claims of a verified id token that identify a person. */
export interface PersonClaims {
  readonly sub: string
  readonly email?: unknown
  readonly email_verified?: unknown
  readonly [claim: string]: unknown
}

export interface OpenIdPeople {
  /** The e-mail addresses and `group:name` of the setting. */
  readonly operators: readonly string[]
  readonly viewers: readonly string[]
  /** The claim with the groups of the person. Its value is an array of names, or one name. */
  readonly groupsClaim: string
}

const GROUP = 'group:'
/** The characters that the header `Acting-For` can contain. */
const USER = /^[\x21-\x7e]{1,100}$/

/** Returns whether the text is an entry of OIDC_OPERATORS or OIDC_VIEWERS. */
export const isListEntry = (entry: string): boolean =>
  entry.startsWith(GROUP) ? entry.length > GROUP.length : /^[^@\s]+@[^@\s]+$/.test(entry)

/**
 * Returns the user name and the role of a person; `null` if neither list names the person. The user name is the e-mail
 * address if the provider has verified it. Otherwise, the user name is `oidc:` followed by the claim `sub`. No other
 * claim becomes the user name, because the person can choose the value of claims such as `preferred_username`.
 */
export function personOf(
  claims: PersonClaims,
  { operators, viewers, groupsClaim }: OpenIdPeople,
): { readonly user: string; readonly role: Role } | null {
  const email =
    typeof claims.email === 'string' && claims.email_verified === true
      ? claims.email.toLowerCase()
      : null
  const groups = [claims[groupsClaim]].flat().filter((group) => typeof group === 'string')
  const isNamedIn = (list: readonly string[]): boolean =>
    list.some((entry) =>
      entry.startsWith(GROUP)
        ? groups.includes(entry.slice(GROUP.length))
        : entry.toLowerCase() === email,
    )
  const role = isNamedIn(operators) ? 'operator' : isNamedIn(viewers) ? 'viewer' : null
  const user = email ?? `oidc:${claims.sub}`
  return role === null || !USER.test(user) ? null : { user, role }
}
