import { IntegrationError } from '../errors.ts'
import type { Scope } from './scope.ts'

/** The permissions of a service key. */
export interface Grants {
  /** The name of the key. It is logged and stored, and reveals nothing about the key itself. */
  readonly keyId: string
  /** Whether this key is one of `SERVICE_API_KEY(S)`, with which the services of an installation call one another. */
  readonly isService: boolean
  readonly scopes: ReadonlySet<Scope>
  /** The realms that the key may use: `*`, exact names, and prefixes that end in `*`. */
  readonly realms: readonly string[]
  /** The names of processes that the key may use: `*`, exact names, and prefixes that end in `*`. */
  readonly processes: readonly string[]
  /** The time after which the key is rejected, in epoch ms; `null` if it does not expire. */
  readonly expiresAt: number | null
}

/** The sender of an authenticated request. */
export class Caller {
  readonly keyId: string
  /** The person for whom the caller acts (header `Acting-For`); `null` if the request names none. */
  readonly person: string | null
  readonly #grants: Grants

  constructor(grants: Grants, person: string | null = null) {
    this.keyId = grants.keyId
    this.person = person
    this.#grants = grants
  }

  /** The caller in the action log and audit log, such as `key erp` or `key console for ada@example.com`. */
  get name(): string {
    return this.person === null ? `key ${this.keyId}` : `key ${this.keyId} for ${this.person}`
  }

  get isService(): boolean {
    return this.#grants.isService
  }

  /**
   * The id of the key if the number of things that it may hold or store is limited by a share of its own, and if what it
   * makes ends with it. `null` for a key of `SERVICE_API_KEY(S)`: it is the installation itself, and is replaced by
   * another key in normal operation.
   */
  get shareOf(): string | null {
    return this.isService ? null : this.keyId
  }

  /** Returns the same caller, acting for `person`. */
  actingFor(person: string): Caller {
    return new Caller(this.#grants, person)
  }

  has(scope: Scope): boolean {
    return this.#grants.scopes.has(scope)
  }

  /**
   * The realms that the key may use: `*`, exact names, and prefixes that end in `*`. A response with a list omits the
   * items of all other realms.
   */
  get realms(): readonly string[] {
    return this.#grants.realms
  }

  /** The names of processes that the key may use, in the same form as `realms`. */
  get processes(): readonly string[] {
    return this.#grants.processes
  }

  mayUseRealm(realm: string): boolean {
    return isCovered(realm, this.#grants.realms)
  }

  mayUseProcess(process: string): boolean {
    return isCovered(process, this.#grants.processes)
  }

  /**
   * Returns whether the key may use a resource of `realm`. A resource without a realm (`null` or `undefined`) may be
   * used with every key.
   */
  mayUse(realm: string | null | undefined): boolean {
    return realm === null || realm === undefined || this.mayUseRealm(realm)
  }

  /**
   * Whether the key may use only certain realms. False for a key that may use every realm, including realms that are
   * connected later.
   */
  get isBoundToRealms(): boolean {
    return !this.#grants.realms.includes('*')
  }

  isExpired(now: number): boolean {
    return this.#grants.expiresAt !== null && this.#grants.expiresAt <= now
  }

  /** Throws `forbidden` if the key does not have the scope. The error names the scope. */
  requireScope(scope: Scope): void {
    if (!this.has(scope)) this.#reject(`lacks the scope ${scope}`, { scope })
  }

  /** Throws `forbidden` if the key may not use the realm. */
  requireRealm(realm: string): void {
    if (!this.mayUseRealm(realm)) this.#reject('may not use this realm')
  }

  /** Throws `forbidden` if `item` belongs to a realm that the key may not use. */
  requireRealmOf({ Realm }: { readonly Realm?: string | null | undefined }): void {
    if (!this.mayUse(Realm)) this.#reject('may not use this realm')
  }

  /** Throws `forbidden` unless the key may use every realm. Called by operations that affect all companies. */
  requireEveryRealm(): void {
    if (this.isBoundToRealms) this.#reject('is bound to realms')
  }

  /** Throws `forbidden` if the key may not use the process. */
  requireProcess(process: string): void {
    if (!this.mayUseProcess(process)) this.#reject('may not use this process')
  }

  /** Throws `forbidden` unless the key may use every process. */
  requireEveryProcess(): void {
    if (!this.#grants.processes.includes('*')) this.#reject('is bound to processes')
  }

  #reject(why: string, members: Readonly<Record<string, unknown>> = {}): never {
    throw new IntegrationError('forbidden', `the service key ${this.keyId} ${why}`, { members })
  }
}

/** Returns whether `name` is covered by patterns of a key: `*`, exact names, and prefixes that end in `*`. */
export const isCovered = (name: string, patterns: readonly string[]): boolean =>
  patterns.some(
    (pattern) =>
      pattern === '*' ||
      (pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern),
  )

/**
 * How many things, such as open streams or stored links, may exist at a time. `perKey` is smaller than `total`, so that
 * one key cannot keep all other keys out.
 */
export interface PlaceLimits {
  /** The maximum for all callers together. */
  readonly total: number
  /** The maximum for one key of the key file. It is not applied to a key without a share (`Caller.shareOf`). */
  readonly perKey: number
}

/** The callers of one process that hold a limited number of places, such as the open event streams. */
export class Places {
  readonly #limits: PlaceLimits
  readonly #held = new Map<string | null, number>()
  #size = 0

  constructor(limits: PlaceLimits) {
    this.#limits = limits
  }

  /** The number of places that are taken. */
  get size(): number {
    return this.#size
  }

  /**
   * Takes a place for a caller. Returns the function that frees the place; calling it again has no effect. Returns
   * `null` if all places are taken, or all places of the caller's key.
   */
  take({ shareOf }: Pick<Caller, 'shareOf'>): (() => void) | null {
    const held = this.#held.get(shareOf) ?? 0
    if (this.#size >= this.#limits.total) return null
    if (shareOf !== null && held >= this.#limits.perKey) return null
    this.#held.set(shareOf, held + 1)
    this.#size += 1
    let isFreed = false
    return () => {
      if (isFreed) return
      isFreed = true
      this.#size -= 1
      const left = (this.#held.get(shareOf) ?? 0) - 1
      // A key that holds nothing is forgotten. Otherwise the map would grow with every key that was ever used.
      if (left === 0) this.#held.delete(shareOf)
      else this.#held.set(shareOf, left)
    }
  }
}
