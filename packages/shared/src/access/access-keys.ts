import { IntegrationError } from '../errors.ts'
import type { Secret } from '../secrets/secret.ts'
import { Caller, type Grants } from './caller.ts'
import { digestOf, type KeyEntry, parseKeyList } from './key-list.ts'
import { type Scope, SERVICE_SCOPES } from './scope.ts'
import { MAX_FAULTS, openListFile, type ReadFile, readableFile } from '../files/list-file.ts'
import type { Health } from '../observability/health.ts'
import type { Logger } from '../observability/logger.ts'
import type { Metrics } from '../observability/metrics.ts'

/** The maximum number of `Authorization` headers whose callers are kept in memory. */
const REMEMBERED_HEADERS = 10_000

/**
 * How long a replica may lag behind the others in reading a changed key file. The file is often distributed by an
 * orchestrator that needs a minute for it.
 */
const LIST_DELAY_MS = 120_000

/**
 * The keys that callers may present to a service: the keys in `SERVICE_API_KEY(S)` and in `SERVICE_KEYS_FILE`.
 */
export class AccessKeys {
  readonly #serviceKeys: readonly (readonly [digest: string, Grants])[]
  readonly #now: () => number
  readonly #onReplaced = new Set<() => void>()
  #byDigest: ReadonlyMap<string, Grants>
  /** The ids of the keys that were listed since this process started, and are no longer listed. */
  #revoked: ReadonlySet<string> = new Set()
  /**
   * The callers of recent requests, by their `Authorization` header. For a known header, no digest has to be computed.
   * Only headers with a valid key are kept. All entries are removed when the key list is replaced.
   */
  #byHeader = new Map<string, Caller>()

  /** @param serviceKeys the keys of `SERVICE_API_KEY(S)`, which have every scope except `act-for` */
  constructor(
    serviceKeys: readonly Secret[],
    { now = Date.now }: { readonly now?: () => number } = {},
  ) {
    this.#serviceKeys = serviceKeys.map((key) => {
      const digest = digestOf(key.reveal())
      return [digest, serviceGrants(digest)]
    })
    this.#byDigest = new Map(this.#serviceKeys)
    this.#now = now
  }

  /** Replaces the keys of the key file by `entries`. The service keys stay valid. */
  replaceList(entries: readonly KeyEntry[]): void {
    const listed = entries.map((entry) => [entry.sha256, grantsOf(entry)] as const)
    const ids = new Set(entries.map(({ id }) => id))
    const before = [...this.#byDigest.values()].map(({ keyId }) => keyId)
    this.#revoked = new Set([...this.#revoked, ...before].filter((id) => !ids.has(id)))
    this.#byDigest = new Map([...listed, ...this.#serviceKeys])
    this.#byHeader = new Map()
    for (const onReplaced of this.#onReplaced) onReplaced()
  }

  /** Calls `onReplaced` after each replacement of the list. Returns the function that ends this. */
  watch(onReplaced: () => void): () => void {
    this.#onReplaced.add(onReplaced)
    return () => void this.#onReplaced.delete(onReplaced)
  }

  /**
   * Returns whether the key that made something has ended: it was revoked or has expired. What it made must then no
   * longer act. A key that this process has never seen has ended too, unless the thing is so new that another replica
   * may know the key already, from a newer key file.
   *
   * @param keyId `null` for something that names no key, because a service of the installation or an earlier release
   *   made it. It never ends in this way.
   * @param madeAt the time in epoch ms at which the thing was made
   */
  hasEnded(keyId: string | null, madeAt: number): boolean {
    if (keyId === null) return false
    const now = this.#now()
    for (const grants of this.#byDigest.values())
      if (grants.keyId === keyId) return grants.expiresAt !== null && grants.expiresAt <= now
    return this.#revoked.has(keyId) || now - madeAt > LIST_DELAY_MS
  }

  /**
   * Returns the caller that presents this `Authorization` header (RFC 6750 §2.1); `null` if its key is not valid or has
   * expired. Digests are compared instead of keys, so the time of a comparison reveals nothing about a key.
   */
  identify(authorization: string | undefined): Caller | null {
    if (authorization === undefined) return null
    const remembered = this.#byHeader.get(authorization)
    const caller = remembered ?? this.#identifyKey(authorization)
    if (caller === null) return null
    if (!caller.isExpired(this.#now())) return caller
    this.#byHeader.delete(authorization)
    return null
  }

  #identifyKey(authorization: string): Caller | null {
    // One or more spaces separate scheme and key (RFC 9110 §11.4).
    const presented = /^Bearer {1,64}([\x21-\x7e]{1,512})$/i.exec(authorization)?.[1]
    const grants = presented === undefined ? undefined : this.#byDigest.get(digestOf(presented))
    if (grants === undefined) return null
    const caller = new Caller(grants)
    if (this.#byHeader.size >= REMEMBERED_HEADERS) this.#byHeader = new Map()
    this.#byHeader.set(authorization, caller)
    return caller
  }
}

/**
 * A key of `SERVICE_API_KEY(S)` has no id, so logs show the first 8 hex digits of its SHA-256. These digits distinguish
 * the few keys of an installation, and do not help to guess a key of at least 32 characters.
 */
const serviceGrants = (digest: string): Grants => ({
  keyId: digest.slice(0, 8),
  isService: true,
  scopes: new Set<Scope>(SERVICE_SCOPES),
  realms: ['*'],
  processes: ['*'],
  expiresAt: null,
})

const grantsOf = ({ id, scopes, realms, processes, expires }: KeyEntry): Grants => ({
  keyId: id,
  isService: false,
  scopes: new Set(scopes),
  realms,
  processes,
  expiresAt: expires === undefined ? null : Date.parse(expires),
})

/** Returns the error for a request without a valid key. */
export const unauthorized = (): IntegrationError =>
  new IntegrationError('unauthorized', 'present a service key as Authorization: Bearer …')

/**
 * The setting `SERVICE_KEYS_FILE`: the path of a valid key file. If the file is not valid, the error names this
 * setting.
 */
export const keyFile = () =>
  readableFile().superRefine(({ text }, context) => {
    for (const message of parseKeyList(text).faults.slice(0, MAX_FAULTS))
      context.addIssue({ code: 'custom', message })
  })

interface Settings {
  readonly SERVICE_API_KEY: readonly Secret[]
  readonly SERVICE_KEYS_FILE?: ReadFile | undefined
}

export interface OpenedAccessKeys extends Disposable {
  readonly keys: AccessKeys
}

/**
 * Loads the keys of a service from its settings and its key file. Changes of the key file take effect without a
 * restart.
 */
export function openAccessKeys(
  { SERVICE_API_KEY, SERVICE_KEYS_FILE }: Settings,
  deps: { readonly logger: Logger; readonly health: Health; readonly metrics: Metrics },
): OpenedAccessKeys {
  const keys = new AccessKeys(SERVICE_API_KEY)
  if (SERVICE_KEYS_FILE === undefined) return { keys, [Symbol.dispose]: () => {} }
  const file = openListFile(
    SERVICE_KEYS_FILE,
    {
      setting: 'SERVICE_KEYS_FILE',
      parse: parseKeyList,
      onList: (list) => keys.replaceList(list),
    },
    deps,
  )
  return { keys, [Symbol.dispose]: () => file[Symbol.dispose]() }
}
