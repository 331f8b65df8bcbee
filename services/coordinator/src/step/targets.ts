/** The targets of a process: services that its steps call by name, without the gateway. */
import { Secret } from '@integration-host/shared/secrets/secret'
import type { TargetLimits } from '../run/target-calls.ts'
import { CONNECTION_HEADERS } from './http-call.ts'

/** The authentication of calls to a target. Keys and passwords are settings that `secret()` declares. */
export type TargetAuth =
  | { readonly bearer: Secret }
  | { readonly basic: { readonly user: string; readonly password: Secret } }
  | { readonly header: { readonly name: string; readonly value: Secret } }

/** A service that the steps of a process call by name. */
export interface Target {
  /** An http(s) URL without user information, query and fragment. The path of a call is appended to it. */
  readonly url: string
  /** The authentication of the calls. If it is absent, calls are sent without authentication. */
  readonly auth?: TargetAuth
  /** The time limit of a call in milliseconds, if the call has no time limit of its own. Default: 60 seconds. */
  readonly timeoutMs?: number
  /**
   * The maximum number of calls per second, over all replicas: from 1/86400 (one call a day) to 1000. The calls are
   * spread evenly: with 2, a call is sent at least half a second after the previous call. Default: no limit.
   */
  readonly perSecond?: number
  /** The maximum number of calls in flight, over all replicas: a whole number from 1 to 1000. Default: no limit. */
  readonly concurrent?: number
}

/** A target that several processes use: what `defineTarget` returns. */
export interface SharedTarget {
  /** The name under which all processes count their calls to the target. @internal */
  readonly [SHARED]: SharedLimits
}

interface SharedLimits extends Pick<Target, 'perSecond' | 'concurrent'> {
  readonly name: string
}

/**
 * Marks shared targets. The symbol is registered globally, because a target may come from another copy of this module. A
 * copy of the object (`{ ...erp, auth }`) has the mark as well.
 */
const SHARED: unique symbol = Symbol.for('integration-host.shared-target') as never

/**
 * Defines a target that several processes use. `perSecond` and `concurrent` limit the calls of all these processes
 * together, over all replicas. The file of a process imports the target and lists it in `targets`. If `url` or `auth`
 * depends on a setting, the process adds it: `targets: ({ erpKey }) => ({ erp: { ...erp, auth: { bearer: erpKey } } })`.
 *
 * @param name a letter, then at most 63 letters, digits, `-` and `_`
 * @throws {TypeError} if the name or a limit is not valid.
 */
export function defineTarget<const Given extends Partial<Target>>(
  name: string,
  target: Given & { readonly [Other in Exclude<keyof Given, keyof Target>]: never },
): Given & SharedTarget {
  if (!TARGET_NAME.test(name)) throw new TypeError(`${name} cannot name a target`)
  const problem = problemOf(name)
  if (!isObject(target)) throw problem('must be an object')
  requireKnownMembers(target, problem)
  requireLimits(target, problem)
  const { perSecond, concurrent } = target
  return { ...target, [SHARED]: { name, perSecond, concurrent } } as Given & SharedTarget
}

/** The targets of a process by name. */
export type Targets = Readonly<Record<string, Target>>

/** A target whose definition was checked. */
export interface BoundTarget {
  /** The URL without a slash at its end. */
  readonly url: string
  /** The header that authenticates a call. Its value is sent to this target only. */
  readonly auth: { readonly name: string; readonly value: Secret } | null
  readonly timeoutMs: number | null
  /** The limits of the target; `null` if it has neither `perSecond` nor `concurrent`. */
  readonly limits: TargetLimits | null
  /** The name under which several processes count their calls; `null` if the target belongs to its process alone. */
  readonly shared: string | null
}

const TARGET_NAME = /^[A-Za-z][A-Za-z0-9_-]{0,63}$/
const HEADER_NAME = /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$/
/** Matches visible ASCII characters with spaces between them. Every server accepts such a header value. */
const HEADER_VALUE = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/
/** The headers that the coordinator sets itself. The `auth` of a target is not allowed to set them. */
const OWN_HEADERS = new Set(['accept', 'content-type', 'idempotency-key', 'traceparent'])
const MEMBERS = new Set<string>([
  'url',
  'auth',
  'timeoutMs',
  'perSecond',
  'concurrent',
] satisfies (keyof Target)[])
const MAX_TIMEOUT_MS = 1_500_000
const MIN_PER_SECOND = 1 / 86_400
const MAX_PER_SECOND = 1_000
const MAX_CONCURRENT = 1_000

/**
 * Checks the targets of a process.
 *
 * @throws {TypeError} with the name of the invalid target and the reason. The message never contains a secret.
 */
export function bindTargets(
  targets: unknown,
  secrets: readonly (readonly [name: string, secret: Secret])[],
): ReadonlyMap<string, BoundTarget> {
  if (!isObject(targets)) throw new TypeError('targets must be an object with a member per target')
  return new Map(
    Object.entries(targets).map(([name, target]) => {
      if (!TARGET_NAME.test(name)) throw new TypeError(`${name} cannot name a target`)
      return [name, bindTarget(target, secrets, problemOf(name))]
    }),
  )
}

const problemOf =
  (name: string) =>
  (what: string): TypeError =>
    new TypeError(`target ${name}: ${what}`)

function requireKnownMembers(target: object, problem: (what: string) => TypeError): void {
  const unknown = Object.keys(target).find((member) => !MEMBERS.has(member))
  if (unknown !== undefined) throw problem(`has no member ${unknown}`)
}

function requireLimits(
  { perSecond, concurrent }: { readonly perSecond?: unknown; readonly concurrent?: unknown },
  problem: (what: string) => TypeError,
): void {
  if (
    perSecond !== undefined &&
    !(typeof perSecond === 'number' && perSecond >= MIN_PER_SECOND && perSecond <= MAX_PER_SECOND)
  )
    throw problem(`perSecond must be a number from 1/86400 to ${MAX_PER_SECOND}`)
  if (
    concurrent !== undefined &&
    !(isWholeNumber(concurrent) && concurrent >= 1 && concurrent <= MAX_CONCURRENT)
  )
    throw problem(`concurrent must be a whole number from 1 to ${MAX_CONCURRENT}`)
}

/** Returns the name of a shared target. @throws {TypeError} if the process has changed its limits. */
function sharedNameOf(
  target: Partial<SharedTarget> & Pick<Target, 'perSecond' | 'concurrent'>,
  problem: (what: string) => TypeError,
): string | null {
  const { [SHARED]: shared } = target
  if (shared === undefined) return null
  const { name, perSecond, concurrent } = shared
  if (target.perSecond !== perSecond || target.concurrent !== concurrent)
    throw problem(`its limits are those of the shared target ${name}: change them there`)
  return name
}

function bindTarget(
  target: unknown,
  secrets: readonly (readonly [name: string, secret: Secret])[],
  problem: (what: string) => TypeError,
): BoundTarget {
  if (!isObject(target)) throw problem('must be an object with a url')
  requireKnownMembers(target, problem)
  requireLimits(target, problem)
  const { url, auth, timeoutMs } = target
  const { perSecond, concurrent } = target as Pick<Target, 'perSecond' | 'concurrent'>
  if (typeof url !== 'string') throw problem('url must be a text')
  const leaked = secrets.find(([, secret]) => url.includes(secret.reveal()))
  if (leaked !== undefined || url.includes('[secret]'))
    throw problem('a secret must not be in its url: use auth')
  const parsed = URL.canParse(url) ? new URL(url) : null
  if (parsed === null || (parsed.protocol !== 'http:' && parsed.protocol !== 'https:'))
    throw problem('url must be an http(s) URL')
  if (parsed.username || parsed.password || parsed.search || parsed.hash)
    throw problem('url must have no user information, query or fragment')
  if (
    timeoutMs !== undefined &&
    !(typeof timeoutMs === 'number' && timeoutMs > 0 && timeoutMs <= MAX_TIMEOUT_MS)
  )
    throw problem(`timeoutMs must be more than 0, at most ${MAX_TIMEOUT_MS}`)
  return {
    url: parsed.href.replace(/(?<!\/)\/+$/, ''),
    auth: auth === undefined ? null : authHeaderOf(auth, problem),
    timeoutMs: timeoutMs ?? null,
    limits:
      perSecond === undefined && concurrent === undefined
        ? null
        : {
            intervalMs: perSecond === undefined ? 0 : 1_000 / perSecond,
            concurrent: concurrent ?? null,
          },
    shared: sharedNameOf(target, problem),
  }
}

/** Returns the header that authenticates a call. */
function authHeaderOf(
  auth: unknown,
  problem: (what: string) => TypeError,
): { readonly name: string; readonly value: Secret } {
  const [[kind, given] = [], ...others] = isObject(auth) ? Object.entries(auth) : []
  if (kind === undefined || others.length > 0)
    throw problem('auth must have one member: bearer, basic or header')
  const valueOf = (secret: unknown, what: string): string => {
    if (!(secret instanceof Secret))
      throw problem(`${what} must be a setting that secret() declares`)
    return secret.reveal()
  }
  switch (kind) {
    case 'bearer': {
      const token = valueOf(given, 'auth.bearer')
      if (!HEADER_VALUE.test(token)) throw problem('auth.bearer must be printable ASCII')
      return { name: 'authorization', value: new Secret(`Bearer ${token}`) }
    }
    case 'basic': {
      const { user, password } = isObject(given) ? given : {}
      // RFC 7617 §2: the user name ends at the first colon.
      if (typeof user !== 'string' || user.includes(':'))
        throw problem('auth.basic.user must be a text without a colon')
      const pair = `${user}:${valueOf(password, 'auth.basic.password')}`
      const encoded = Buffer.from(pair, 'utf8').toString('base64')
      return { name: 'authorization', value: new Secret(`Basic ${encoded}`) }
    }
    case 'header': {
      const { name, value } = isObject(given) ? given : {}
      const lower = typeof name === 'string' && HEADER_NAME.test(name) ? name.toLowerCase() : ''
      if (lower === '' || OWN_HEADERS.has(lower) || CONNECTION_HEADERS.has(lower))
        throw problem('auth.header.name must be the name of a header that calls do not have yet')
      const text = valueOf(value, 'auth.header.value')
      if (!HEADER_VALUE.test(text)) throw problem('auth.header.value must be printable ASCII')
      return { name: lower, value: new Secret(text) }
    }
    default:
      throw problem(`auth has no member ${kind}: it must be bearer, basic or header`)
  }
}

/** Returns the secrets that authenticate calls to the targets, in the form in which headers contain them. */
export const authSecretsOf = (
  targets: ReadonlyMap<string, BoundTarget>,
): readonly (readonly [name: string, secret: Secret])[] =>
  [...targets].flatMap(([name, { auth }]) =>
    // In `Bearer x` and `Basic x`, only the credentials after the scheme are secret.
    auth === null
      ? []
      : [[`the auth of ${name}`, new Secret(auth.value.reveal().replace(/^\w+ /, ''))] as const],
  )

const isWholeNumber = (value: unknown): value is number => Number.isInteger(value)

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
