/** Marks a POST so that the provider recognises a repetition, as the provider's profile says. */
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
  /** The key that was added for the caller; `null` if the caller's own is used, or none. */
  readonly addedKey: string | null
  /** Whether sending it twice does no more than sending it once. */
  readonly isRepeatable: boolean
}

export interface CallersPost {
  readonly path: string
  /** With lower-case names. Its `idempotency-key` gives the same call the same mark, also after a restart. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
}

/**
 * Builds the function that marks a caller's POST by the rules of the provider. Without a rule a POST goes out
 * unchanged, and once: a key that the provider does not know protects nothing.
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
    if (own !== 'absent') return { ...unchanged, isRepeatable: own === 'there' }
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

/** Intuit accepts 50 characters, 36 for a batch. */
const derivedKey = (key: string | string[] | undefined): string | null =>
  typeof key === 'string' && key !== '' ? hash('sha256', key).slice(0, 32) : null

type OwnKey = (post: CallersPost) => 'there' | 'other' | 'absent'

/**
 * Whether a query has the parameter, once, by its documented name and with a value. `other`: in any other way
 * that a server might take for it (another case, an encoded name, an empty value, twice). What a server
 * makes of that is not documented, so such a POST is neither marked again nor repeated.
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
    return named.length === 1 && own[0] === name && own[1] !== '' ? 'there' : 'other'
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
    return text // malformed encoding: no server reads it as the name
  }
}

const headerKey =
  ({ name }: RepeatablePost): OwnKey =>
  ({ headers }) =>
    headers[name.toLowerCase()] ? 'there' : 'absent'

/** `path` with a parameter added after what the caller wrote. */
function withParameter(path: string, name: string, value: string): string {
  const separator = path.includes('?') ? (/[?&]$/.test(path) ? '' : '&') : '?'
  return `${path}${separator}${name}=${value}`
}
