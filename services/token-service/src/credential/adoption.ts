/**
 * Adopts grants: takes over grants that another program obtained and has refreshed until now. The refresh token of a
 * grant is sent to the provider once. The response proves that the grant is valid, and contains a new token pair. Only
 * the new pair is stored.
 *
 *   inspect the record → claim → one POST → put (with the event) → end the claim
 *
 * A1  A usable credential is never replaced, and nothing is sent for its company. A credential whose grant was rejected
 *     or exported is replaced, under its lease. So a refresh and an adoption of the same company never overlap.
 * A2  No token is sent before its claim is stored. The claim excludes other replicas for as long as the request may be
 *     in flight. Storing the claim also proves that the store accepts writes (I3 and I5 of refresh.ts).
 * A3  The token is sent again once if the request was not sent or its outcome is unknown, and never after a response
 *     (I4). The operator still has the token in the file of grants, so the grant can be sent again after a crash.
 * A4  A received token pair stays in memory until it is stored. During shutdown, the write is retried for
 *     `commitDeadlineMs`. After that, the token pair is written to a file (I6).
 * A5  The record keeps the id of the adopted token (`Lease.grantId`) through all refreshes. If an operator sends the
 *     same grant again later, its token is not sent to the provider: the stored id shows that the token was already
 *     adopted, even after rotations.
 * A6  A failed adoption changes nothing but the audit log.
 */
import { createHash } from 'node:crypto'
import { credentialName } from '@integration-host/shared/contracts/realm'
import { hasCode } from '@integration-host/shared/errors'
import { backoffMs } from '@integration-host/shared/process/backoff'
import { createSemaphore } from '@integration-host/shared/process/limits'
import { DecryptionError } from '@integration-host/shared/secrets/envelope'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { Provider, ProviderResponse } from '../provider/provider.ts'
import { type Grant, refreshDueAt, renewedGrant } from './credential.ts'
import { type AdoptionClaim, type LeasedCredential, VersionConflict } from './credential-store.ts'
import type { CustodyDeps } from './custody-deps.ts'
import { hasEndedGrant, isProvisional } from './fault.ts'
import type { LabelsChange } from './labels.ts'
import { acquireLease, LEASE_MS } from './exclusive-lease.ts'
import { auditFactOf, reasonWith } from './outbox.ts'
import { type Failpoint, type RefreshTiming, UNREAD_PAIR_RETRY_MS } from './refresh.ts'
import type { KeptPair } from './restoration.ts'

/** A grant that another program obtained from the provider. */
export interface ForeignGrant {
  readonly realm: string
  readonly environment: string
  /** The newest refresh token that the other program received. */
  readonly refreshToken: Secret
  /** The label and tags for the credential. */
  readonly labels: LabelsChange
}

/** The result of an adoption. */
export type Adoption =
  | {
      readonly kind: 'stored'
      readonly version: number
      /** How the accepted token response differs from RFC 6749; absent if it does not. */
      readonly oddities?: readonly string[]
    }
  | { readonly kind: 'already_here'; readonly version: number; readonly reason: string }
  /** The grant was rejected. Another attempt to adopt it cannot succeed. */
  | {
      readonly kind: 'refused'
      readonly code: string
      readonly reason: string
      readonly traceId: string | null
    }
  | {
      readonly kind: 'unavailable'
      readonly code: string
      readonly reason: string
      readonly retryAfterMs: number
    }

export interface AdoptionDeps extends CustodyDeps {
  readonly provider: Pick<Provider, 'refresh'>
  readonly heldBackMs: () => number
  readonly timing: Pick<
    RefreshTiming,
    'intentMaxAgeMs' | 'ambiguousRetryDelayMs' | 'commitDeadlineMs'
  >
  /**
   * Called with a token pair that could not be stored. Writes the pair to a file (A4), and resolves with `false` if
   * that is not possible.
   */
  readonly rescue: (pair: KeptPair) => Promise<boolean>
  readonly report: (report: {
    readonly name: string
    readonly outcome: Adoption['kind'] | 'rotation_rescued' | 'rotation_dropped'
    readonly code?: string
    readonly traceId: string | null
    /** How the accepted token response differs from RFC 6749; absent if it does not. */
    readonly oddities?: readonly string[]
  }) => void
  /** Called and awaited at each failpoint, where a test can interrupt the adoption. Only tests set this function. */
  readonly failpoint?: (point: Failpoint, name: string) => Promise<void> | void
}

/** The number of grants that one process adopts at the same time. */
const CONCURRENCY = 4
/** The minimum time between two token requests that one replica sends to adopt grants, in milliseconds. */
const SPACING_MS = 50
const PUT_RETRY = { baseMs: 100, capMs: 1_000, random: 1 } as const

export type Adoptions = ReturnType<typeof createAdoptions>

export function createAdoptions(deps: AdoptionDeps) {
  const { store, provider, owner, timing, now } = deps
  const semaphore = createSemaphore(CONCURRENCY)
  const inFlight = new Map<string, Promise<Adoption>>()
  const shutdown = new AbortController()
  let commitDeadlineAt = Number.POSITIVE_INFINITY
  let nextRequestAt = 0
  /**
   * The provider has requested that no token request is sent before this time of the monotonic clock; 0 if it has
   * requested no pause.
   */
  let pausedUntil = 0

  const failpoint = async (point: Failpoint, name: string): Promise<void> =>
    deps.failpoint?.(point, name)
  const pause = (ms: number): Promise<void> => deps.sleep(ms, shutdown.signal)

  /** Acquires the lease of the stored credential; `null` if no credential is stored. */
  async function leaseOf(name: string): Promise<LeasedCredential | null> {
    return acquireLease(name, deps).catch((error: unknown) => {
      if (hasCode(error, 'credential_not_found')) return null
      throw error
    })
  }

  /**
   * Returns the version number that the credential had when it was removed; 0 if no credential of this name was
   * removed. If the new token pair has to be written to a file (A4), its version number must be greater.
   */
  async function removedVersionOf(name: string): Promise<number> {
    const acquired = await store.acquire(name, owner, LEASE_MS)
    if (acquired.kind === 'acquired') await store.release(acquired.leased.lease) // A conflict is detected by `put`.
    return acquired.kind === 'absent' ? (acquired.removedVersion ?? 0) : 0
  }

  async function adoptGrant(grant: ForeignGrant, who: string): Promise<Adoption> {
    const name = credentialName(grant.realm)
    const id = adoptionId(grant.refreshToken)
    const leased = await leaseOf(name)
    const settled = leased === null ? null : withoutAdoption(leased, id)
    const removedVersion = leased === null ? await removedVersionOf(name) : 0
    // The lease is renewed until the adoption ends, because the provider may take longer to respond than the lease
    // lasts.
    const renewal = leased && setInterval(() => void renew(leased), LEASE_MS / 3)
    try {
      return settled ?? (await exchange(grant, { name, id, who, over: leased, removedVersion }))
    } finally {
      clearInterval(renewal ?? undefined)
      // If the grant was stored, `put` has already removed the lease, and this release has no effect.
      if (leased !== null) await store.release(leased.lease).catch(() => {})
    }
  }

  const renew = ({ lease }: LeasedCredential): Promise<unknown> =>
    store.renew(lease, LEASE_MS).catch(() => {})

  interface Target {
    readonly name: string
    readonly id: string
    readonly who: string
    /** The credential that the grant replaces; `null` if no credential is stored. */
    readonly over: LeasedCredential | null
    /** The last version of a removed credential of this name; 0 if none was removed. */
    readonly removedVersion: number
  }

  async function exchange(grant: ForeignGrant, target: Target): Promise<Adoption> {
    const { name, id } = target
    const claim: AdoptionClaim = { id, owner }
    let isAmbiguous = false
    let retriesLeft = 1
    for (let claims = 0; ; claims += 1) {
      const heldBackMs = Math.max(deps.heldBackMs(), pausedUntil - performance.now())
      if (heldBackMs > 0)
        return unavailable('throttled', 'the provider accepts no calls now', heldBackMs)
      await pace()
      if (shutdown.signal.aborted) return shuttingDown
      const claimedAt = performance.now()
      const claimed = await store.claimAdoption(name, claim, timing.intentMaxAgeMs)
      if (claimed.kind === 'busy') {
        const reason =
          'another process has sent a token of this company, or was killed while it did'
        return unavailable('busy', reason, claimed.retryAfterMs)
      }
      // Only the first claim of this function call shows whether an earlier call had already claimed the adoption.
      // Each further claim would find the stored claim of this function call itself.
      if (claims === 0) isAmbiguous = claimed.wasClaimedBefore
      await failpoint('after intent', name)
      // If this process was suspended for too long, another process may have claimed the adoption. The claim is
      // therefore stored again before the token is sent (A2).
      if (performance.now() - claimedAt >= timing.ambiguousRetryDelayMs) continue
      const startedAt = now()
      const outcome = await provider.refresh(grant.refreshToken)
      await failpoint('after response', name)
      switch (outcome.kind) {
        case 'granted': {
          const { tokens, oddities } = outcome
          if (tokens.realm !== null && tokens.realm !== grant.realm) {
            await store.endAdoption(name, claim).catch(() => {})
            const reason = `the provider says that this is a grant of company ${tokens.realm}; correct the line`
            return refused(target, 'realm_mismatch', reason, null)
          }
          const { refreshToken } = grant
          const before = {
            name,
            environment: grant.environment,
            hardExpiresAt: null,
            refreshToken,
            idToken: null,
            previous: null,
          }
          const adopted = {
            ...renewedGrant(before, refreshToken, tokens, startedAt, deps.idleLimitMs),
            ...grant.labels,
          }
          const stored = await commit(adopted, target, oddities)
          await store.endAdoption(name, claim).catch(() => {})
          return stored
        }
        case 'never_sent':
        case 'unknown': {
          // The claim is kept after a request of unknown outcome, so that a later rejection of the token can be
          // explained.
          isAmbiguous ||= outcome.kind === 'unknown'
          const isPairUnread = outcome.kind === 'unknown' && outcome.mayHoldTokens === true
          if (retriesLeft === 0 || isPairUnread) {
            if (!isAmbiguous) await store.endAdoption(name, claim)
            return unavailable(
              'provider_unavailable',
              'the provider gave no usable response',
              isPairUnread ? UNREAD_PAIR_RETRY_MS : RETRY_MS,
            )
          }
          retriesLeft -= 1
          await pause(timing.ambiguousRetryDelayMs)
          break
        }
        case 'throttled':
        case 'client_refused': {
          if (!isAmbiguous) await store.endAdoption(name, claim)
          const retryAfterMs = outcome.retryAfterMs ?? 60_000
          if (outcome.kind === 'throttled') pausedUntil = performance.now() + retryAfterMs
          return unavailable(outcome.kind, REASONS[outcome.kind], retryAfterMs)
        }
        case 'refused': {
          await store.endAdoption(name, claim)
          if (outcome.error !== 'invalid_grant' || !isAmbiguous)
            return refused(
              target,
              outcome.error,
              `the provider responded: ${outcome.body}`,
              outcome,
            )
          return refused(target, 'rotation_lost', ROTATION_LOST, outcome)
        }
        default:
          return outcome satisfies never
      }
    }
  }

  /** Waits until the next token request may be sent. */
  async function pace(): Promise<void> {
    const at = Math.max(performance.now(), nextRequestAt)
    nextRequestAt = at + SPACING_MS
    await pause(Math.max(0, at - performance.now()))
  }

  /**
   * Stores a received token pair (A4). Retries until the store accepts or rejects the pair. During shutdown, retries
   * until the commit deadline. Then the pair is written to a file (`rotation_rescued`) or dropped (`rotation_dropped`).
   */
  async function commit(
    grant: Grant,
    { name, id, who, over, removedVersion }: Target,
    oddities: readonly string[] = [],
  ): Promise<Adoption> {
    const dueAt = refreshDueAt(grant, deps.refreshAheadMs)
    const oddity = reasonWith(undefined, oddities)
    const context = { at: now(), who, what: 'adopted', reason: oddity } as const
    let overVersion = over?.lease.version ?? null
    await failpoint('before commit', name)
    for (let attempt = 1; ; attempt += 1) {
      try {
        const { version } = await store.put(grant, dueAt, context, { id, over: overVersion })
        deps.notifyOutbox()
        await failpoint('after commit', name)
        return { kind: 'stored', version, ...(oddities.length > 0 && { oddities }) }
      } catch (error) {
        if (error instanceof VersionConflict) {
          const stored = await storedVersion(name)
          if (stored !== undefined && stored > (overVersion ?? 0)) {
            const reason = 'the company was connected meanwhile'
            return { kind: 'already_here', version: stored, reason }
          }
          // The store has lost the expected version in a failover. The grant now replaces the version that is stored.
          if (stored !== undefined) overVersion = stored === 0 ? null : stored
        } else if (!hasCode(error, 'store_unavailable')) deps.onError(error)
      }
      if (performance.now() > commitDeadlineAt) {
        const version = Math.max(overVersion ?? 0, removedVersion) + 1
        const isRescued = await deps.rescue({
          name,
          version,
          grantId: id,
          isNewGrant: true,
          grant,
          dueAt,
          context,
          isNoticeNew: grant.expiryNoticeDays !== null,
        })
        const outcome = isRescued ? 'rotation_rescued' : 'rotation_dropped'
        deps.report({ name, outcome, traceId: null })
        return unavailable('store_unavailable', 'the store is not available', RETRY_MS)
      }
      await deps.sleep(backoffMs(attempt, PUT_RETRY)) // This wait is not aborted at shutdown.
    }
  }

  /** Resolves with the stored version, or with 0 if there is no credential; `undefined` if the store is unavailable. */
  const storedVersion = (name: string): Promise<number | undefined> =>
    store.get(name).then(
      (credential) => credential?.version ?? 0,
      () => undefined,
    )

  async function refused(
    { name, who }: Target,
    code: string,
    reason: string,
    response: ProviderResponse | null,
  ): Promise<Adoption> {
    const traceId = response?.traceId ?? null
    const context = { at: now(), who, what: 'adopted', outcome: code, traceId } as const
    // Even if the audit entry cannot be stored, the caller gets the provider's response.
    await store.record([auditFactOf({ name, version: 0 }, context)]).catch(() => {})
    deps.notifyOutbox()
    return { kind: 'refused', code, reason, traceId }
  }

  async function started(
    grant: ForeignGrant,
    name: string,
    who: string,
    signal: AbortSignal,
  ): Promise<Adoption> {
    try {
      const adoption = await semaphore.run(async () =>
        signal.aborted
          ? unavailable('cancelled', 'the caller has closed the connection', 0)
          : adoptGrant(grant, who),
      )
      deps.report({
        name,
        outcome: adoption.kind,
        ...('code' in adoption && { code: adoption.code }),
        ...('oddities' in adoption && { oddities: adoption.oddities }),
        traceId: 'traceId' in adoption ? adoption.traceId : null,
      })
      return adoption
    } catch (error) {
      if (error instanceof DecryptionError) {
        const reason = 'the stored record of this company cannot be opened'
        return { kind: 'refused', code: 'record_rejected', reason, traceId: null }
      }
      for (const code of ['store_unavailable', 'provider_unavailable', 'shutting_down'] as const)
        if (hasCode(error, code))
          return unavailable(code, error.message, (error.retryAfterSeconds ?? 1) * 1_000)
      throw error
    } finally {
      inFlight.delete(name)
    }
  }

  return {
    /**
     * Adopts one grant. Expected failures are returned instead of thrown. `who` is the caller in the audit log. If
     * `signal` aborts before the adoption has started, no token is sent.
     */
    async adopt(grant: ForeignGrant, who: string, signal: AbortSignal): Promise<Adoption> {
      const name = credentialName(grant.realm)
      if (shutdown.signal.aborted) return shuttingDown
      if (inFlight.has(name))
        return unavailable('busy', 'a grant of this company is being adopted', RETRY_MS)
      const running = started(grant, name, who, signal)
      inFlight.set(name, running)
      return running
    },
    async [Symbol.asyncDispose](): Promise<void> {
      commitDeadlineAt = performance.now() + timing.commitDeadlineMs
      shutdown.abort()
      await Promise.allSettled(inFlight.values())
    },
  }
}

/**
 * Returns the id of an adopted refresh token, which is its digest. Refresh tokens cannot be guessed, so the digest does
 * not reveal the token.
 */
const adoptionId = (refreshToken: Secret): string =>
  `adopted-${createHash('sha256').update(refreshToken.reveal()).digest('base64url')}`

const REASONS = {
  throttled: 'the provider throttles',
  client_refused: 'the provider rejects the credentials of this application',
} as const

const ROTATION_LOST =
  'the provider rejects the token; the response to an earlier request with this token was lost and may have contained a newer token: reconnect the company'

/**
 * How long a caller should wait before it repeats a failed adoption, in milliseconds. A wait that the provider requests
 * takes precedence.
 */
const RETRY_MS = 2_000

const unavailable = (code: string, reason: string, retryAfterMs: number): Adoption => ({
  kind: 'unavailable',
  code,
  reason,
  retryAfterMs,
})

const shuttingDown = unavailable('shutting_down', 'the service is shutting down', RETRY_MS)

/**
 * Returns the result if the stored credential forbids the adoption (A1, A5); `null` if the credential may be replaced.
 */
function withoutAdoption({ lease, credential }: LeasedCredential, id: string): Adoption | null {
  const { fault, version } = credential
  const wasAdopted = lease.grantId === id
  if (!hasEndedGrant(fault) || (wasAdopted && isProvisional(fault))) {
    const reason = wasAdopted ? 'this token was adopted before' : 'the company is connected here'
    return { kind: 'already_here', version, reason }
  }
  if (!wasAdopted) return null
  const reason = `it was adopted before, and the grant has ended since (${fault?.Code}): reconnect the company`
  return { kind: 'refused', code: fault?.Code ?? '', reason, traceId: fault?.TraceId ?? null }
}
