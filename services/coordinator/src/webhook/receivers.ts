/**
 * Parses the content of `WEBHOOKS_FILE`: the receivers, the events to which each of them subscribes, and the secrets
 * that sign the webhooks.
 */
import { createHash } from 'node:crypto'
import type { ParsedList } from '@integration-host/shared/files/list-file'
import { OWN_TEXT, parseJson } from '@integration-host/shared/json'
import { webhookTypes, type WebhookType } from '@integration-host/shared/contracts/events'
import { Secret } from '@integration-host/shared/secrets/secret'
import { z } from 'zod'

/** A receiver of webhooks. */
export interface Receiver {
  /**
   * The host and eight hex digits of the SHA-256 of the URL, such as `hooks.example.com-3f2a9c1d`. The URL itself may
   * contain a secret, so it is neither logged nor stored.
   */
  readonly id: string
  readonly url: URL
  /** Whether `WEBHOOKS_ALLOWED_HOSTS` lists the host. Such a host may have a private address and use plain HTTP. */
  readonly isAllowedByName: boolean
  /** The signing key: 24 to 64 bytes in base64. */
  readonly key: Secret
  readonly events: ReadonlySet<WebhookType>
}

/** The rules by which the address of a receiver is checked. */
export interface AddressRules {
  /** The host names in `WEBHOOKS_ALLOWED_HOSTS`, in lower case. */
  readonly allowedHosts: ReadonlySet<string>
  /** Whether a host is an IP address that the public internet does not route. */
  readonly isPrivateLiteral: (host: string) => boolean
}

const MAX_RECEIVERS = 100
const MAX_URL_LENGTH = 2_048
const SECRET_PREFIX = 'whsec_'

const Entry = z.strictObject({
  url: z
    .string('must be a URL')
    .max(MAX_URL_LENGTH, `must have at most ${MAX_URL_LENGTH} characters`),
  secret: z.string('must be a secret').refine(isStrongSecret, {
    error: 'must be whsec_ and the base64 of 24 to 64 random bytes',
  }),
  events: z
    .array(
      z.enum(webhookTypes, `each must be one of ${webhookTypes.join(', ')}`),
      'must be a list of events',
    )
    .min(1, 'must name an event'),
})
const Entries = z
  .array(Entry, 'must be a list of {url, secret, events}')
  .max(MAX_RECEIVERS, `must have at most ${MAX_RECEIVERS} receivers`)

/**
 * Parses the content of `WEBHOOKS_FILE`. If the content is not valid, `faults` has a line for each fault. A line
 * contains the position of the entry and the violated rule, but no value of the file.
 */
export function parseReceivers(text: string, rules: AddressRules): ParsedList<Receiver> {
  const json = parseJson(text.replace(/^\uFEFF/, ''), OWN_TEXT)
  if (json === undefined) return { list: null, faults: ['is not JSON'] }
  const parsed = Entries.safeParse(json)
  const faults = parsed.success ? [] : parsed.error.issues.map(faultOf)
  const receivers: Receiver[] = []
  for (const [index, entry] of (Array.isArray(json) ? json : []).entries()) {
    const { url } = (entry ?? {}) as { url?: unknown }
    if (typeof url !== 'string' || url.length > MAX_URL_LENGTH) continue
    const address = parseAddress(url, rules)
    if (typeof address === 'string') faults.push(`entry ${index + 1}: url: ${address}`)
    else if (receivers.some(({ id }) => id === address.id))
      faults.push(`entry ${index + 1}: url: is that of an earlier entry`)
    else {
      const { secret = '', events = [] } = parsed.data?.[index] ?? {}
      const key = new Secret(secret.slice(SECRET_PREFIX.length))
      receivers.push({ ...address, key, events: new Set(events) })
    }
  }
  return faults.length === 0 ? { list: receivers, faults: [] } : { list: null, faults }
}

/** Returns the address of a receiver, or the rule that the text violates. */
function parseAddress(
  text: string,
  { allowedHosts, isPrivateLiteral }: AddressRules,
): Pick<Receiver, 'id' | 'url' | 'isAllowedByName'> | string {
  const url = URL.parse(text)
  if (url === null || !/^https?:$/.test(url.protocol)) return 'must be an https URL'
  if (url.username !== '' || url.password !== '') return 'must not contain credentials'
  if (text.includes('#')) return 'must not have a fragment'
  const host = url.hostname.replace(/^\[|\]$/g, '')
  const isAllowedByName = allowedHosts.has(host)
  if (!isAllowedByName && url.protocol === 'http:')
    return 'must use https, unless WEBHOOKS_ALLOWED_HOSTS names the host'
  if (!isAllowedByName && isPrivateLiteral(host))
    return 'is an address of a private network, which WEBHOOKS_ALLOWED_HOSTS does not name'
  const digest = createHash('sha256').update(url.href).digest('hex')
  return { id: `${host}-${digest.slice(0, 8)}`, url, isAllowedByName }
}

/** Whether a secret has the form of Standard Webhooks and looks random: one of 10¹² has fewer than 12 different bytes. */
function isStrongSecret(secret: string): boolean {
  const base64 = secret.startsWith(SECRET_PREFIX) ? secret.slice(SECRET_PREFIX.length) : ''
  const key = Buffer.from(base64, 'base64')
  const isCanonical = key.toString('base64') === base64
  return isCanonical && key.length >= 24 && key.length <= 64 && new Set(key).size >= 12
}

function faultOf({ path, code, message, ...issue }: z.core.$ZodIssue): string {
  const [index, member] = path
  if (typeof index !== 'number') return message
  // The name of an unknown member comes from the file and can be any text, so it is printed as JSON and shortened.
  const what =
    code === 'unrecognized_keys' && 'keys' in issue
      ? `unknown member ${issue.keys.map((key) => JSON.stringify(key.slice(0, 40))).join(', ')}`
      : message
  return `entry ${index + 1}: ${typeof member === 'string' ? `${member}: ` : ''}${what}`
}
