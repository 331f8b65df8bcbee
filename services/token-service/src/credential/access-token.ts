/**
 * Issues valid access tokens. Refreshes a credential if its refresh is due, if its access token has expired, or if a
 * caller requests a refresh.
 */
import { hasCode, IntegrationError } from '@integration-host/shared/errors'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { type Credential, freshness } from './credential.ts'
import { notFound, versionMoved } from './credential-store.ts'
import type { CustodyDeps } from './custody-deps.ts'
import type { AuditCounter } from './audit-counter.ts'
import { type RefreshResult, type RefreshRoutine, refreshBlocked } from './refresh.ts'

type IssuedCredential = Credential & { readonly accessToken: Secret }

/**
 * The maximum number of cached credentials. While the store is unavailable, access tokens are issued from this cache.
 */
const MAX_CACHED = 5_000

export type AccessTokens = ReturnType<typeof createAccessTokens>

export function createAccessTokens(
  deps: Pick<CustodyDeps, 'store' | 'refreshAheadMs' | 'now'> & {
    readonly routine: Pick<RefreshRoutine, 'refresh' | 'uncommitted'>
    readonly auditCounter: Pick<AuditCounter, 'count'>
    /** Whether the provider rejects CLIENT_ID and CLIENT_SECRET. */
    readonly isClientRejected: () => boolean
  },
) {
  const { store, routine, now, refreshAheadMs } = deps
  const cached = new Map<string, Credential>()

  function cache(credential: Credential): void {
    cached.delete(credential.name)
    cached.set(credential.name, credential)
    const [oldest] = cached.keys()
    if (cached.size > MAX_CACHED && oldest !== undefined) cached.delete(oldest)
  }

  async function read(name: string): Promise<Credential | null> {
    const uncommitted = routine.uncommitted(name)
    try {
      const stored = await store.get(name)
      if (stored === null) cached.delete(name)
      else cache(stored)
      return uncommitted !== null && (stored === null || uncommitted.version > stored.version)
        ? uncommitted
        : stored
    } catch (error) {
      // While the store is unavailable, a cached access token is issued until it expires.
      const known = uncommitted ?? cached.get(name)
      if (hasCode(error, 'store_unavailable') && known !== undefined && now() < known.expiresAt)
        return known
      throw error
    }
  }

  function issue(credential: Credential, who: string): IssuedCredential {
    const { name, version, accessToken } = credential
    if (accessToken === null) throw new TypeError('a usable credential has an access token')
    deps.auditCounter.count({ name, version }, { who, what: 'handed_out' })
    return { ...credential, accessToken }
  }

  return {
    /**
     * Returns the credential with a valid access token, after a refresh if the stored access token has expired.
     *
     * @throws {IntegrationError} `credential_not_found`, `credential_faulted`, `provider_unavailable`,
     * `provider_client_rejected`, `store_unavailable`.
     */
    async usable(name: string, who: string): Promise<IssuedCredential> {
      const credential = await read(name)
      if (credential === null) throw notFound(name)
      const state = freshness(credential, now(), refreshAheadMs)
      // The access tokens of a company that has disconnected the application are no longer valid, so they are not
      // issued.
      const isDisconnected = credential.fault?.Code === 'disconnected'
      if (state === 'fresh' && !isDisconnected) return issue(credential, who)
      const blocked = refreshBlocked(credential, now())
      if (state === 'due' && !isDisconnected) {
        // The refresh runs in the background, and the caller gets the current token, which is still valid. A failure of
        // the refresh is stored with the credential.
        if (blocked === null) routine.refresh(name, { kind: 'fresh' }, who).catch(() => {})
        return issue(credential, who)
      }
      const result = blocked ?? (await routine.refresh(name, { kind: 'fresh' }, who))
      return issue(refreshed(name, result, deps.isClientRejected), who)
    },

    /**
     * Refreshes the credential now, unless the stored version is newer than `version`. If `version` is `null`, refreshes
     * in any case.
     *
     * Throws the same errors as `usable`. Also throws `version_moved` if `ifVersion` is a number and another version is
     * stored. The audit entry contains `reason`.
     */
    async renew(
      name: string,
      version: number | null,
      who: string,
      {
        ifVersion = null,
        reason,
      }: { readonly ifVersion?: number | null; readonly reason?: string | undefined } = {},
    ): Promise<Credential> {
      const stored = await read(name)
      if (stored === null) throw notFound(name)
      if (ifVersion !== null && stored.version !== ifVersion) throw versionMoved(stored)
      // A version above the stored one never existed. It is treated as the stored version, because otherwise every
      // request with such a version would rotate the token.
      const base = Math.min(version ?? stored.version, stored.version)
      const goal = { kind: 'newer', version: base, force: version === null } as const
      const result = await routine.refresh(name, goal, who, reason)
      const credential = refreshed(name, result, deps.isClientRejected)
      cache(credential)
      return credential
    },
  }
}

function refreshed(
  name: string,
  result: RefreshResult,
  isClientRejected: () => boolean,
): Credential {
  switch (result.kind) {
    case 'refreshed':
      return result.credential
    case 'faulted':
      throw new IntegrationError('credential_faulted', result.fault.Message, {
        members: { Fault: result.fault },
      })
    case 'deferred': {
      const fault = result.credential?.fault ?? null
      const details = {
        retryAfterSeconds: result.retryAfterMs / 1_000,
        ...(fault !== null && { members: { Fault: fault } }),
      }
      throw isClientRejected()
        ? new IntegrationError(
            'provider_client_rejected',
            `${name} cannot be refreshed: the provider rejects CLIENT_ID and CLIENT_SECRET of token-service`,
            details,
          )
        : new IntegrationError('provider_unavailable', `${name} cannot be refreshed now`, details)
    }
    case 'absent':
      throw notFound(name)
  }
}
