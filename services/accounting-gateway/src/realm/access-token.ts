/**
 * Caches the access token of each realm.
 *
 * I1  A token is used only for the realm that it was requested for.
 * I2  One request to token-service is in flight per realm, however many calls wait for its response.
 * I3  A token that a credential event or a 401 has invalidated is never used from the cache again, even if the
 *     response that contains it was already in flight.
 * I4  A valid token is used at once. An old one is also requested again in the background, so token-service may be
 *     unavailable until the cached token expires.
 * I5  A provider that rejects every token does not cause a refresh per call: a token that came from a forced refresh
 *     is not force-refreshed again for a minute, unless a new grant is stored.
 */
import { hasCode } from '@integration-host/shared/errors'

export interface AccessToken {
  readonly value: string
  /** Epoch ms. */
  readonly expiresAt: number
  /** The version of the credential; it increases with every refresh. */
  readonly version: number
}

/** The port to token-service. */
export interface TokenSource {
  /** @throws {IntegrationError} `credential_not_found`, `credential_faulted`, `token_service_unavailable`, `provider_unavailable` */
  token(realm: string): Promise<AccessToken>
  /** Refreshes the credential unless it is already newer than `version`. Throws as `token` does. */
  refresh(realm: string, version: number): Promise<void>
}

export interface AccessTokens {
  /** Returns the cached token; `null` if there is none that is still valid. */
  cached(realm: string): AccessToken | null
  /** Returns the cached token, or requests one. Throws as {@link TokenSource.token} does. */
  get(realm: string): Promise<AccessToken>
  /** Whether upstream may accept another token than that of `version`: a newer one is cached, or I5 allows a refresh. */
  isRefreshable(realm: string, version: number): boolean
  /** Returns a token newer than `version`, which upstream rejected; all callers share one forced refresh. */
  refreshedAfter401(realm: string, version: number): Promise<AccessToken>
  /** Removes a realm's token from the cache. `isNewGrant`: the company was authorized again, which ends I5's minute. */
  evict(realm: string, isNewGrant: boolean): void
}

interface Entry {
  token: AccessToken | null
  /** Epoch ms from which the cached token is requested again in the background. */
  freshUntil: number
  /** The request in flight (I2). */
  pending: Promise<AccessToken> | null
  /**
   * The last forced refresh. Until the epoch ms `until`, its result, also a failure, is shared by all calls that were
   * rejected with the same version. `until` is infinite while the refresh is in flight.
   */
  forcedRefresh: {
    readonly version: number
    readonly done: Promise<AccessToken>
    until: number
  } | null
  /** The version that the last forced refresh returned, and when (I5). */
  lastForced: { readonly version: number; readonly at: number } | null
}

/** A token this close to its expiry may expire before upstream checks it. */
const EXPIRY_MARGIN_MS = 5_000
const REFRESH_MARGIN_MS = 60_000
/** Credential events can be lost while the broker is unavailable, so a token is requested again after this time. */
const MAX_AGE_MS = 300_000
/** Time after a failed request or refresh before the next one. */
const FAILURE_COOL_DOWN_MS = 5_000
/** I5 */
const FORCED_REFRESH_COOL_DOWN_MS = 60_000
/** Number of entries from which expired ones are removed. */
const SWEEP_AT = 10_000

export function createAccessTokens({
  source,
  now,
}: {
  readonly source: TokenSource
  readonly now: () => number
}): AccessTokens {
  const entries = new Map<string, Entry>()

  function entryOf(realm: string): Entry {
    const known = entries.get(realm)
    if (known !== undefined) return known
    if (entries.size >= SWEEP_AT) {
      for (const [name, { token, pending }] of entries)
        if (pending === null && (token === null || token.expiresAt <= now())) entries.delete(name)
    }
    const entry: Entry = {
      token: null,
      freshUntil: 0,
      pending: null,
      forcedRefresh: null,
      lastForced: null,
    }
    entries.set(realm, entry)
    return entry
  }

  function request(realm: string, entry: Entry): Promise<AccessToken> {
    if (entry.pending !== null) return entry.pending
    const pending = source.token(realm).then(
      (token) => {
        if (entry.pending === pending) {
          entry.pending = null
          entry.token = token
          entry.freshUntil = Math.min(token.expiresAt - REFRESH_MARGIN_MS, now() + MAX_AGE_MS)
          // Close to the expiry token-service is about to refresh; a request per call would not make that faster.
          entry.freshUntil = Math.max(entry.freshUntil, now() + FAILURE_COOL_DOWN_MS)
        }
        return token
      },
      (error: unknown) => {
        if (entry.pending === pending) {
          entry.pending = null
          entry.freshUntil = now() + FAILURE_COOL_DOWN_MS
          // The credential was removed, so its cached token must not be used any longer.
          if (hasCode(error, 'credential_not_found')) entries.delete(realm)
        }
        throw error
      },
    )
    // A background request has no caller that handles its failure.
    pending.catch(() => {})
    entry.pending = pending
    return pending
  }

  // I3: the response in flight may already be outdated. Calls that wait for it still get it, but it is not cached.
  function invalidate(entry: Entry): void {
    entry.token = null
    entry.pending = null
  }

  function cached(realm: string): AccessToken | null {
    const entry = entries.get(realm)
    const token = entry?.token ?? null
    if (entry === undefined || token === null) return null
    const at = now()
    if (at >= token.expiresAt - EXPIRY_MARGIN_MS) return null
    if (at >= entry.freshUntil) void request(realm, entry) // I4
    return token
  }

  async function forceRefresh(realm: string, entry: Entry, version: number): Promise<AccessToken> {
    await source.refresh(realm, version)
    invalidate(entry)
    const token = await request(realm, entry)
    entry.lastForced = { version: token.version, at: now() }
    return token
  }

  return {
    cached,

    async get(realm) {
      const entry = entryOf(realm)
      const { forcedRefresh } = entry
      // While a forced refresh is in flight, token-service could only return the token that upstream rejected.
      if (forcedRefresh !== null && forcedRefresh.until === Number.POSITIVE_INFINITY)
        return forcedRefresh.done
      return cached(realm) ?? request(realm, entry)
    },

    isRefreshable(realm, version) {
      const { token = null, lastForced = null } = entries.get(realm) ?? {}
      if (token !== null && token.version > version) return true
      return (
        lastForced === null ||
        version < lastForced.version ||
        now() >= lastForced.at + FORCED_REFRESH_COOL_DOWN_MS
      )
    },

    async refreshedAfter401(realm, version) {
      const entry = entryOf(realm)
      if (entry.token !== null && entry.token.version > version) return entry.token
      if (entry.token !== null) invalidate(entry)
      const { forcedRefresh } = entry
      if (forcedRefresh?.version === version && now() < forcedRefresh.until)
        return forcedRefresh.done
      // A forced refresh of a newer version is in flight, and its result is newer than `version` too. A second one
      // beside it could replace the first, and return the very token that the first was started to replace.
      if (
        forcedRefresh !== null &&
        forcedRefresh.version > version &&
        forcedRefresh.until === Number.POSITIVE_INFINITY
      )
        return forcedRefresh.done
      const done = forceRefresh(realm, entry, version)
      const started = { version, done, until: Number.POSITIVE_INFINITY }
      entry.forcedRefresh = started
      const settled = (): void => {
        started.until = now() + FAILURE_COOL_DOWN_MS
      }
      done.then(settled, settled)
      return done
    },

    evict(realm, isNewGrant) {
      const entry = entries.get(realm)
      if (entry === undefined) return
      invalidate(entry)
      entry.forcedRefresh = null
      // Only for a new grant: if every refresh ended the minute of I5, replicas would force refreshes in turns forever.
      if (isNewGrant) entry.lastForced = null
    },
  }
}
