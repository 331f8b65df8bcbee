/** Adds an idempotency key to a POST by the rules of the provider's profile. */
import { hash } from 'node:crypto'
import type {
  ProviderProfile,
  RepeatablePost,
} from '@integration-host/shared/provider-profile/provider-profile'

export interface MarkedPost {
  /** The path to send, with its query. */
  readonly path: string
  /** Header names and values to add. */
  readonly headers: readonly string[]
  /** The key that was added; `null` if the caller's own is used, or none. */
  readonly addedKey: string | null
  /** Whether sending it twice has the same effect as sending it once. */
  readonly isRepeatable: boolean
}

export interface CallersPost {
  readonly path: string
  /** With lower-case names. The key is derived from `idempotency-key`, so it is the same after a restart. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
}

/**
 * Builds the function that adds an idempotency key to a caller's POST. Without a rule in the provider's profile a
 * POST is sent unchanged, and never repeated: a key that the provider ignores would not prevent a duplicate.
 */
export function createPostMarker(
  { repeatablePost: rule, isReadingPost }: PostRules,
  newKey: () => string,
): (post: CallersPost) => MarkedPost {
  const ownKey = rule === null ? null : rule.in === 'query' ? queryKey(rule) : headerKey(rule)
  return ({ path, headers }) => {
    const unchanged = { path, headers: [], addedKey: null }
    if (isReadingPost(path)) return { ...unchanged, isRepeatable: true }
    if (rule === null || ownKey === null) return { ...unchanged, isRepeatable: false }
    const own = ownKey({ path, headers })
    if (own !== 'absent') return { ...unchanged, isRepeatable: own === 'present' }
    const addedKey = derivedKey(headers['idempotency-key']) ?? newKey()
    return rule.in === 'query'
      ? {
          path: withParameter(path, rule.name, addedKey),
          headers: [],
          addedKey,
          isRepeatable: true,
        }
      : { path, headers: [rule.name, addedKey], addedKey, isRepeatable: true }
  }
}

type PostRules = Pick<ProviderProfile['accounting'], 'repeatablePost' | 'isReadingPost'>

/** Intuit accepts keys of at most 50 characters, and 36 for a batch; this one has 32. */
const derivedKey = (key: string | string[] | undefined): string | null =>
  typeof key === 'string' && key !== '' ? hash('sha256', key).slice(0, 32) : null

type OwnKey = (post: CallersPost) => 'present' | 'other' | 'absent'

/**
 * Builds the function that looks for the parameter in a query. `present`: it occurs once, with its documented name
 * and a value. `other`: it occurs in a form that a server might accept as well (another case, an encoded name, an
 * empty value, twice). That is not documented, so such a POST is neither given a second key nor repeated.
 */
function queryKey({ name }: RepeatablePost): OwnKey {
  return ({ path }) => {
    const start = path.indexOf('?')
    const named = (start === -1 ? '' : path.slice(start + 1))
      .split('&')
      .map((parameter) => splitOnce(parameter, '='))
      .filter(([key]) => decoded(key).toLowerCase() === name.toLowerCase())
    const [own] = named
    if (own === undefined) return 'absent'
    return named.length === 1 && own[0] === name && own[1] !== '' ? 'present' : 'other'
  }
}

function splitOnce(text: string, separator: string): readonly [string, string] {
  const at = text.indexOf(separator)
  return at === -1 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)]
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text // With malformed encoding it cannot be the name of the parameter.
  }
}

const headerKey =
  ({ name }: RepeatablePost): OwnKey =>
  ({ headers }) =>
    headers[name.toLowerCase()] ? 'present' : 'absent'

/** Returns `path` with a parameter appended to the caller's query. */
function withParameter(path: string, name: string, value: string): string {
  const separator = path.includes('?') ? (/[?&]$/.test(path) ? '' : '&') : '?'
  return `${path}${separator}${name}=${value}`
}
