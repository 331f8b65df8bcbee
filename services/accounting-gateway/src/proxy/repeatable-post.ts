/** Adds an idempotency key to a POST request. The provider profile defines where the key is sent. */
import { hash } from 'node:crypto'
import { asObject, DOCUMENT_LIMITS, parseJsonObject } from '@integration-host/shared/json'
import type {
  ProviderProfile,
  RepeatablePost,
} from '@integration-host/shared/provider-profile/provider-profile'
import { isBatch } from './target.ts'

export interface MarkedPost {
  /** The path and query to send upstream. */
  readonly path: string
  /** Names and values of the headers to add to the request. */
  readonly headers: readonly string[]
  /** The idempotency key that the gateway added; `null` if the caller sent its own key or if no key is used. */
  readonly addedKey: string | null
  /** True if sending the request twice has the same effect as sending it once. */
  readonly isRepeatable: boolean
}

export interface CallersPost {
  readonly path: string
  /**
   * The request headers, with names in lower case. They may contain the caller's `idempotency-key`, from which the
   * gateway derives the same key even after a restart.
   */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  /** The body, which is read only for a batch; `null` if it is not buffered or has a content coding. */
  readonly body?: readonly Buffer[] | null
}

/**
 * Returns a function that adds an idempotency key to a caller's POST. If the provider profile defines no such key, a
 * POST is sent unchanged and never repeated, because a key that the provider ignores would not prevent a duplicate.
 * Neither is a POST with the header `Send-Once`: its caller finds out by other means whether it has taken effect.
 */
export function createPostMarker(
  { repeatablePost: rule, isReadingPost }: PostRules,
  newKey: () => string,
): (post: CallersPost) => MarkedPost {
  const ownKey = rule === null ? null : rule.in === 'query' ? queryKey(rule) : headerKey(rule)
  const marked = ({ path, headers, body = null }: CallersPost): MarkedPost => {
    const unchanged = { path, headers: [], addedKey: null }
    if (isReadingPost(path)) return { ...unchanged, isRepeatable: true }
    if (rule === null || ownKey === null) return { ...unchanged, isRepeatable: false }
    const own = ownKey({ path, headers })
    if (own !== 'absent') return { ...unchanged, isRepeatable: own === 'present' }
    const addedKey = derivedKey(headers['idempotency-key']) ?? newKey()
    // Without a key, the ids of the items have no such limit. A batch that the added key would make invalid is therefore
    // sent unchanged.
    if (isBatch(path)) {
      const longest = body === null ? null : longestItemId(Buffer.concat(body))
      const { maxLengthWithItemId = Number.POSITIVE_INFINITY } = rule
      if (longest === null || addedKey.length + longest > maxLengthWithItemId)
        return { ...unchanged, isRepeatable: false }
    }
    return rule.in === 'query'
      ? {
          path: withParameter(path, rule.name, addedKey),
          headers: [],
          addedKey,
          isRepeatable: true,
        }
      : { path, headers: [rule.name, addedKey], addedKey, isRepeatable: true }
  }
  return (post) =>
    post.headers['send-once'] === undefined
      ? marked(post)
      : { ...marked(post), isRepeatable: false }
}

type PostRules = Pick<ProviderProfile['accounting'], 'repeatablePost' | 'isReadingPost'>

/** Returns a key of 32 characters. Intuit accepts at most 50 characters. */
const derivedKey = (key: string | string[] | undefined): string | null =>
  typeof key === 'string' && key !== '' ? hash('sha256', key).slice(0, 32) : null

/** Returns the length of the longest `bId` in the body of a batch; `null` if the body cannot be read. */
function longestItemId(body: Buffer): number | null {
  const text = body.toString('utf8')
  // A body that the gateway keeps in memory may have more elements than a request to a service of this product.
  const items = parseJsonObject(text, DOCUMENT_LIMITS)?.['BatchItemRequest']
  const ids = Array.isArray(items)
    ? items.flatMap((item) =>
        Object.entries(asObject(item) ?? {})
          .filter(([name]) => name.toLowerCase() === 'bid')
          .map(([, id]) => String(id)),
      )
    : // In XML, `bId` is an attribute of an item.
      [...text.matchAll(/\bbId\s*=\s*(?:"([^"]*)"|'([^']*)')/gi)].map(
        ([, double, single]) => double ?? single ?? '',
      )
  if (ids.length === 0 && !Array.isArray(items)) return null
  // Bytes are counted, because a character outside ASCII may count as several.
  return ids.reduce((longest, id) => Math.max(longest, Buffer.byteLength(id)), 0)
}

type OwnKey = (post: CallersPost) => 'present' | 'other' | 'absent'

/**
 * Returns a function that searches the query of a POST for the parameter that contains the idempotency key. The result
 * is `present` if the parameter occurs once, with its documented name and a value.
 *
 * The result is `other` if the parameter occurs in an undocumented way that a server might accept as well: in different
 * upper or lower case, with an encoded name, with an empty value, or twice. For `other`, the gateway neither adds a
 * second key nor repeats the POST.
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
    return text // A malformed name cannot be the name of the parameter.
  }
}

const headerKey =
  ({ name }: RepeatablePost): OwnKey =>
  ({ headers }) =>
    headers[name.toLowerCase()] ? 'present' : 'absent'

/** Returns `path` with one parameter appended to its query. */
function withParameter(path: string, name: string, value: string): string {
  const separator = path.includes('?') ? (/[?&]$/.test(path) ? '' : '&') : '?'
  return `${path}${separator}${name}=${value}`
}
