/**
 * Caches the access token of each realm.
 *
 * I1  A token is used only for the realm for which it was requested.
 * I2  At most one request to token-service is in flight per realm. All calls of the realm wait for the same response.
 * I3  After a credential event or a 401 response has invalidated a token, the token is never used from the cache again.
 *     This also applies to a token whose response was in flight at that time.
 * I4  A valid cached token is used at once. If the token is old, a new one is requested in the background. So
 *     token-service may be unavailable until the cached token expires.
 * I5  Even if the provider rejects every token, calls force a refresh at most once a minute. If upstream rejects the
 *     token of a forced refresh as well, the next forced refresh is permitted when the minute is over or a new grant is
 *     stored.
 */
import { hasCode } from '@integration-host/shared/errors'

export interface AccessToken {
  readonly value: string
  /** Expiry of the token in epoch ms. */
  readonly expiresAt: number
  /** Version of the credential that the token belongs to. Every refresh increases the version. */
  readonly version: number
}

/** The port to token-service, which issues access tokens. */
export interface TokenSource {
  /**
   * Returns the realm's current token.
   *
   * @throws {IntegrationError} `credential_not_found`, `credential_faulted`, `token_service_unavailable`,
   * `provider_unavailable`, `provider_client_rejected`
   */
  token(realm: string): Promise<AccessToken>
  /**
   * Forces a refresh of the credential, unless the credential is already newer than `version`. Throws the same errors
   * as `token`.
   */
  refresh(realm: string, version: number): Promise<void>
}

export interface TokenCache {
  /** Returns the realm's cached token; `null` if the cache contains no valid token of the realm. */
  cached(realm: string): AccessToken | null
  /**
   * Returns the realm's cached token. Requests a token if none is cached. Throws the same errors as {@link
   * TokenSource.token}.
   */
  get(realm: string): Promise<AccessToken>
  /**
   * Returns true if a call that was rejected with the token of `version` may succeed with another token. Either a newer
   * token is cached, or a forced refresh is permitted (at most one per minute, I5).
   */
  isRefreshable(realm: string, version: number): boolean
  /**
   * Returns a token that is newer than `version`, after upstream has rejected the token of `version` with 401. All
   * callers share one forced refresh.
   */
  refreshedAfter401(realm: string, version: number): Promise<AccessToken>
  /**
   * Removes a realm's token from the cache. If `isNewGrant` is true, the company was authorized again, so a forced
   * refresh is permitted at once (I5).
   */
  evict(realm: string, isNewGrant: boolean): void
}

interface Entry {
  token: AccessToken | null
  /** Time in epoch ms from which a new token is requested in the background, while the cached token is still used. */
  freshUntil: number
  /** The request to token-service that is in flight, at most one per realm (I2); `null` if no request is in flight. */
  pending: Promise<AccessToken> | null
  /**
   * The last forced refresh. All calls that were rejected with the token of `version` share its result or failure until
   * the time `until` (epoch ms). `until` is infinite while the refresh is in flight.
   */
  forcedRefresh: {
    readonly version: number
    readonly done: Promise<AccessToken>
    until: number
  } | null
  /**
   * The token version that the last forced refresh returned, and the time of this refresh. The next forced refresh is
   * permitted a minute later (I5).
   */
  lastForced: { readonly version: number; readonly at: number } | null
}

/**
 * The minimum remaining lifetime of a token that is used, in ms. A shorter-lived token could expire before upstream
 * checks it.
 */
const EXPIRY_MARGIN_MS = 5_000
const REFRESH_MARGIN_MS = 60_000
/**
 * The age at which a cached token is requested again, in ms. Credential events also cause a new request, but such
 * events can be lost while the message broker is unavailable.
 */
const MAX_AGE_MS = 300_000
/** Minimum pause between a failed request or refresh and the next request or refresh, in ms. */
const FAILURE_COOL_DOWN_MS = 5_000
/** Minimum time between two forced refreshes if upstream rejects every token (I5). */
const FORCED_REFRESH_COOL_DOWN_MS = 60_000
/** When the cache has this many entries, expired entries are removed before a new entry is added. */
const SWEEP_AT = 10_000

export function createTokenCache({
  source,
  now,
}: {
  readonly source: TokenSource
  readonly now: () => number
}): TokenCache {
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
          // Even if the new token is about to expire as well, the next token is requested only after a pause. Without
          // the pause, every call would send such a request, although token-service refreshes the token by itself.
          entry.freshUntil = Math.max(entry.freshUntil, now() + FAILURE_COOL_DOWN_MS)
        }
        return token
      },
      (error: unknown) => {
        if (entry.pending === pending) {
          entry.pending = null
          entry.freshUntil = now() + FAILURE_COOL_DOWN_MS
          // The credential has been removed from token-service, so the cached token must no longer be used.
          if (hasCode(error, 'credential_not_found')) entries.delete(realm)
        }
        throw error
      },
    )
    // No caller awaits this background request, so its failure must not cause an unhandled rejection.
    pending.catch(() => {})
    entry.pending = pending
    return pending
  }

  // Removes the cached token. The token of a request in flight may already be outdated, so the response is not cached
  // (I3). The calls that wait for this response still get its token.
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
    // The old cached token is still used while a new token is requested in the background (I4).
    if (at >= entry.freshUntil) void request(realm, entry)
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
      // A forced refresh is in flight. Until it ends, a request to token-service would return the token that upstream
      // has rejected.
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
      // A forced refresh of a newer version is in flight, so its token is newer than `version` as well. A second
      // refresh could overwrite the first one in the cache, and could return the token that upstream has just rejected.
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
      // Only a new grant permits another forced refresh at once. If every `refreshed` event permitted a forced refresh,
      // the refresh of one gateway replica would cause a refresh of another replica, without end.
      if (isNewGrant) entry.lastForced = null
    },
  }
}
