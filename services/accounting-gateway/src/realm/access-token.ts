/**
 * The access token of each realm, kept here between calls.
 *
 * I1  A token goes only with the realm it was asked for.
 * I2  One question at a time per realm, however many calls wait for the answer.
 * I3  What a credential event or a 401 has put in doubt is never handed out again from memory, also when
 *     the answer that brings it was already on its way.
 * I4  A token that is valid is handed out at once; when it is old it is asked for again in the background,
 *     so an absent token-service is noticed only when the token in hand has expired.
 * I5  A provider that refuses every token is not answered with a refresh for every call: what came of a
 *     forced refresh is not refreshed by force again for a while, unless a new grant is stored.
 */
import { hasCode } from '@integration-host/shared/errors'

export interface AccessToken {
  readonly value: string
  /** Epoch ms. */
  readonly expiresAt: number
  /** Of the credential; grows with every refresh. */
  readonly version: number
}

/** The port to token-service. */
export interface TokenSource {
  /** @throws {IntegrationError} `credential_not_found`, `credential_faulted`, `token_service_unavailable`, `provider_unavailable` */
  token(realm: string): Promise<AccessToken>
  /** Has the credential refreshed unless it is already newer than `version`. Throws as `token` does. */
  refresh(realm: string, version: number): Promise<void>
}

export interface AccessTokens {
  /** The token in hand, null when there is none to rely on. */
  cached(realm: string): AccessToken | null
  /** The token in hand, else asked for. Throws as {@link TokenSource.token} does. */
  get(realm: string): Promise<AccessToken>
  /** Whether there is, or may be had, a token that upstream may like better than that of `version`. */
  isRenewable(realm: string, version: number): boolean
  /** A token newer than `version`, which upstream has refused: one forced refresh, whoever asks. */
  renewed(realm: string, version: number): Promise<AccessToken>
  /** Forgets what a credential event is about; `isNewGrant` when the company was authorized again. */
  drop(realm: string, isNewGrant: boolean): void
}

interface Entry {
  token: AccessToken | null
  /** Epoch ms from which the token in hand is asked for again in the background. */
  freshUntil: number
  asking: Promise<AccessToken> | null
  /** The last forced refresh, and until when its failure stands for all who ask for the same. */
  renewal: { readonly version: number; readonly done: Promise<AccessToken>; until: number } | null
  /** What the last forced refresh brought, and when that was. */
  forced: { readonly version: number; readonly at: number } | null
}

/** A token that is about to expire could do so on its way. */
const EXPIRY_MARGIN_MS = 5_000
const REFRESH_MARGIN_MS = 60_000
/** Events can be lost while the broker is away; after this a token is looked at again. */
const LONGEST_REST_MS = 300_000
/** How long a failure to ask again, or to refresh, is left alone. */
const FAILURE_REST_MS = 5_000
/** I5 */
const FORCED_REST_MS = 60_000
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
      for (const [name, { token, asking }] of entries)
        if (asking === null && (token === null || token.expiresAt <= now())) entries.delete(name)
    }
    const entry: Entry = { token: null, freshUntil: 0, asking: null, renewal: null, forced: null }
    entries.set(realm, entry)
    return entry
  }

  function ask(realm: string, entry: Entry): Promise<AccessToken> {
    if (entry.asking !== null) return entry.asking
    const asking = source.token(realm).then(
      (token) => {
        if (entry.asking === asking) {
          entry.asking = null
          entry.token = token
          entry.freshUntil = Math.min(token.expiresAt - REFRESH_MARGIN_MS, now() + LONGEST_REST_MS)
          // Near its end token-service has the new one shortly; asking with every call would not hurry it.
          entry.freshUntil = Math.max(entry.freshUntil, now() + FAILURE_REST_MS)
        }
        return token
      },
      (error: unknown) => {
        if (entry.asking === asking) {
          entry.asking = null
          entry.freshUntil = now() + FAILURE_REST_MS
          // Gone for good: what is in hand belongs to nobody any more.
          if (hasCode(error, 'credential_not_found')) entries.delete(realm)
        }
        throw error
      },
    )
    // Asked for in the background, nobody may be waiting for the failure.
    asking.catch(() => {})
    entry.asking = asking
    return asking
  }

  // I3: what is being asked for may already be old; those who wait for it get it, nobody else.
  function doubt(entry: Entry): void {
    entry.token = null
    entry.asking = null
  }

  function cached(realm: string): AccessToken | null {
    const entry = entries.get(realm)
    const token = entry?.token ?? null
    if (entry === undefined || token === null) return null
    const at = now()
    if (at >= token.expiresAt - EXPIRY_MARGIN_MS) return null
    if (at >= entry.freshUntil) void ask(realm, entry) // I4
    return token
  }

  async function renew(realm: string, entry: Entry, version: number): Promise<AccessToken> {
    await source.refresh(realm, version)
    doubt(entry)
    const token = await ask(realm, entry)
    entry.forced = { version: token.version, at: now() }
    return token
  }

  return {
    cached,
    async get(realm) {
      const entry = entryOf(realm)
      // A forced refresh under way: the token of before would only be refused again.
      if (entry.renewal !== null && entry.renewal.until === Number.POSITIVE_INFINITY)
        return entry.renewal.done
      return cached(realm) ?? ask(realm, entry)
    },
    isRenewable(realm, version) {
      const { token = null, forced = null } = entries.get(realm) ?? {}
      if (token !== null && token.version > version) return true
      return forced === null || version < forced.version || now() >= forced.at + FORCED_REST_MS
    },
    async renewed(realm, version) {
      const entry = entryOf(realm)
      if (entry.token !== null && entry.token.version > version) return entry.token
      if (entry.token !== null) doubt(entry)
      const { renewal } = entry
      if (renewal?.version === version && now() < renewal.until) return renewal.done
      // One of a newer token, under way: it brings what is newer than this one too. A second beside it
      // could take its place, and hand out the very token that the first was started to replace.
      if (
        renewal !== null &&
        renewal.version > version &&
        renewal.until === Number.POSITIVE_INFINITY
      )
        return renewal.done
      const done = renew(realm, entry, version)
      const started = { version, done, until: Number.POSITIVE_INFINITY }
      entry.renewal = started
      const rest = (): void => {
        started.until = now() + FAILURE_REST_MS
      }
      done.then(rest, rest)
      return done
    },
    drop(realm, isNewGrant) {
      const entry = entries.get(realm)
      if (entry === undefined) return
      doubt(entry)
      entry.renewal = null
      // Not of our own refresh, nor of another replica's: they would take turns for ever.
      if (isNewGrant) entry.forced = null
    },
  }
}
