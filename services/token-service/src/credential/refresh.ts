/**
 * Refreshes a credential. Only one rotation runs at a time, and no rotation is lost if the provider allows recovery.
 *
 * A refresh token may become invalid as soon as it was sent, and the new token pair exists only in the response. The
 * steps are ordered for recovery: whenever a process stops between two steps, another process can continue from the
 * stored record.
 *
 *   acquire the lease → re-read the record → store the intent → one POST → commit → (event, by the outbox relay)
 *
 * The next refresh is due at `refreshDueAt` (credential.ts) after a success, and at the time that `settlementOf`
 * (refresh-failure.ts) returns after a failure; due-refreshes.ts starts it. docs/custody.md has a table of the points at
 * which a process may die, and one of what each response means.
 *
 * I1  Only one refresh of a credential runs at a time. Callers in the same process share a promise, and a lease with a
 *     fencing token (`fence`) excludes other replicas. A replica that does not get the lease polls the record, because
 *     leases have no queue.
 * I2  The record is read again under the lease. If the record already satisfies the goal, nothing is sent.
 * I3  No request is sent before the intent is stored. The intent names the version whose refresh token will be sent,
 *     and storing it proves that the store accepts writes. If storing it fails, no token was used. In a replicated
 *     store, "stored" means that the required number of replicas has acknowledged the write (`REDIS_REPLICAS`). An
 *     intent that too few replicas have acknowledged is withdrawn.
 * I4  Two requests never overlap: a second request starts only after the first is closed and `ambiguousRetryDelayMs`
 *     has passed. A request is retried once if it was not sent or its outcome is unknown, as after a 5xx, and never
 *     after a response that says whether the token was used. After `invalid_grant`, only the previous token follows (I9).
 *     If a success response arrived that may contain a pair, but no pair can be read from it, the refresh token is not
 *     sent again before `UNREAD_PAIR_RETRY_MS`: a provider that accepts each refresh token once may end the grant.
 * I5  An intent stays while a request with the stored refresh token may have been processed. A commit, a new grant, a
 *     final fault, or a failure without such a request clears it. A process that finds an intent of an earlier lease waits
 *     until that request can no longer be in flight (`intentMaxAgeMs`), and then sends the same refresh token again. This
 *     matters if the lease was lost early, as in a failover; the lease of a killed process lasts longer. If the store
 *     has failed over since the intent was stored, the other process may have a pair that it could not commit (I6), and
 *     may reach the new primary later than this process. So the refresh is deferred until `failoverDeferralMs` after
 *     the failover. During the wait and the deferral, this process does not hold the lease, so that the other process
 *     can acquire it and commit its pair (I7).
 * I6  A received pair stays in memory until it is stored ("stored" as in I3). Until then its access token is issued.
 *     The commit is retried at the current primary until it succeeds or is superseded. During shutdown it is retried
 *     for `commitDeadlineMs`. After that the pair is written to a file (`RESCUE_DIR`) and reported as
 *     `rotation_rescued`. If the file cannot be written, the pair is dropped and reported as `rotation_dropped`.
 * I7  A commit compares version and fence. A newer fence means that another process may be sending the same refresh
 *     token. In this case, the pair is committed under a new lease if no newer version is stored. The same happens if
 *     the store has lost the previous version in a failover.
 * I8  A new grant advances the version, so the commit of a refresh in flight is rejected.
 * I9  A fault is stored beside the tokens, which are kept. Of all responses, only the OAuth error `invalid_grant` ends a
 *     grant. Before the grant counts as ended, the record is read again, and the previous refresh token is tried, because
 *     the provider may still accept it. It is tried once and not while a fault is provisional, because a provider may
 *     end a grant if superseded tokens are presented repeatedly.
 * I10 A provider may respond with `invalid_grant` in an outage, and a rejected token remains valid if the rejection
 *     was wrong. So the first fault is provisional: the same token is sent again after the delays of the provider
 *     profile, a few times within about a day, and only then is the fault final. If one of these requests fails for a
 *     reason that is unrelated to the grant, the provisional fault stays in place. If a browser has reported that the
 *     company disconnected the application, the fault is `disconnected`, and access tokens are no longer issued.
 */
import type { Fault } from '@integration-host/shared/contracts/credential'
import { hasCode, IntegrationError } from '@integration-host/shared/errors'
import { backoffMs } from '@integration-host/shared/process/backoff'
import { createSemaphore } from '@integration-host/shared/process/limits'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { Provider, ProviderResponse } from '../provider/provider.ts'
import {
  type Credential,
  credentialOf,
  freshness,
  type Grant,
  refreshDueAt,
  renewedGrant,
} from './credential.ts'
import type { CredentialStore, Lease, LeasedCredential } from './credential-store.ts'
import type { CustodyDeps } from './custody-deps.ts'
import { hasEndedGrant, isProvisional, isTerminal, RETRY_CAP_MS } from './fault.ts'
import {
  endsGrant,
  type RefreshFailure,
  type RefreshFailureClass,
  rejectionClass,
  settlementOf,
} from './refresh-failure.ts'
import { type AuditContext, reasonWith } from './outbox.ts'
import type { KeptPair } from './restoration.ts'

/** The goal of a refresh: the state of the credential that the caller needs. */
export type RefreshGoal =
  /** The refresh of the credential must not be due. */
  | { readonly kind: 'fresh' }
  /**
   * The token pair must be newer than `version`.
   *
   * - `force`: the provider is called even before `nextTryAt` of a failed refresh.
   * - `isDisconnectReported`: if the provider rejects the refresh token, the company has disconnected the application
   *   (disconnect-hints.ts).
   */
  | {
      readonly kind: 'newer'
      readonly version: number
      readonly force: boolean
      readonly isDisconnectReported?: boolean
    }

export type RefreshResult =
  | { readonly kind: 'refreshed'; readonly credential: Credential }
  /** Further refreshes cannot succeed, because a new grant is required. */
  | { readonly kind: 'faulted'; readonly credential: Credential; readonly fault: Fault }
  /** The caller can retry later: the provider is unavailable or throttles, or another replica is still refreshing. */
  | {
      readonly kind: 'deferred'
      readonly credential: Credential | null
      readonly retryAfterMs: number
    }
  | { readonly kind: 'absent' }

/**
 * The Retry-After of a refresh that is deferred after a failover (I5). It is short, because the other process may
 * commit its token pair at any time.
 */
const DEFERRED_RETRY_MS = 2_000

/** The points between the steps of a refresh at which tests pause or kill the process. */
export const failpoints = [
  'before intent',
  'after intent',
  'after response',
  'before commit',
  'after commit',
] as const
export type Failpoint = (typeof failpoints)[number]

/** The durations of the refresh protocol, in milliseconds. */
export interface RefreshTiming {
  /**
   * The duration of a lease, which is longer than a provider request takes. A lease is renewed whenever a third of its
   * duration has passed.
   */
  readonly leaseMs: number
  /** The age of an intent of an earlier lease after which its request can no longer be in flight (I5). */
  readonly intentMaxAgeMs: number
  /**
   * How long a refresh after a failover of the store is deferred if another process stored an intent before the
   * failover (I5).
   */
  readonly failoverDeferralMs: number
  /** The pause before the retry of a request of unknown outcome (I4). */
  readonly ambiguousRetryDelayMs: number
  /** The pause between two reads of a record that another replica is refreshing. */
  readonly pollMs: number
  /** How long a caller waits for the refresh of another replica. */
  readonly waitTimeoutMs: number
  /** How long a process that shuts down tries to commit a rotated token pair (I6). */
  readonly commitDeadlineMs: number
  /** How long after a rotation the previous refresh token is still tried if the current one is rejected. */
  readonly graceMs: number
  /** The delays before a rejected refresh token is sent again. If empty, the first rejection is final (I10). */
  readonly rejectedGrantRetryDelaysMs: readonly number[]
}

/**
 * How long a refresh token is not sent again after a response that may contain a pair (I4). It is shorter than the grace
 * periods of providers, within which the provider would send the pair again.
 */
export const UNREAD_PAIR_RETRY_MS = 30_000

/** The number of reads of a record between two attempts to acquire its lease. */
const POLLS_PER_ACQUIRE = 20

/**
 * The default durations, for provider requests that take at most 10 s. Two further durations come from the provider
 * profile.
 */
export const refreshTiming: Omit<RefreshTiming, 'graceMs' | 'rejectedGrantRetryDelaysMs'> = {
  leaseMs: 15_000,
  intentMaxAgeMs: 12_000,
  // The deferral covers a measured delay: on an overloaded machine, one process reached the new primary half a minute
  // after another. A longer deferral could cost the grant if the other process has died. A provider with a grace period
  // of 60 s accepts the old refresh token only within 60 s of the rotation, and a failover by Sentinel may take 15 s of
  // this time.
  failoverDeferralMs: 40_000,
  ambiguousRetryDelayMs: 2_000,
  pollMs: 50,
  waitTimeoutMs: 25_000,
  commitDeadlineMs: 5_000,
}

/** The outcome of one refresh under the lease, for logs and metrics. It does not contain secrets. */
export interface RefreshReport {
  readonly name: string
  readonly outcome:
    | 'refreshed'
    | RefreshFailureClass
    /** Another write advanced the version during the request, so the store has a newer token pair. */
    | 'superseded'
    /** The provider rotated the refresh token, and the new token pair was written to a file instead of the store. */
    | 'rotation_rescued'
    /** The provider rotated the refresh token, and the new token pair was lost with this process. */
    | 'rotation_dropped'
  /** The number of requests that were sent to the token endpoint. */
  readonly calls: number
  readonly traceId: string | null
  /** How the accepted token response differs from RFC 6749; absent if it does not. */
  readonly oddities?: readonly string[]
}

export interface RefreshDeps extends Omit<CustodyDeps, 'store'> {
  readonly store: Pick<
    CredentialStore,
    'get' | 'acquire' | 'renew' | 'release' | 'recordIntent' | 'commit' | 'settle'
  >
  readonly provider: Pick<Provider, 'refresh'>
  /**
   * Returns the milliseconds until the next token request may be sent. The value is 0 while the provider accepts the
   * client credentials.
   */
  readonly heldBackMs: () => number
  readonly timing: RefreshTiming
  /** The maximum number of refreshes in flight over all realms. */
  readonly concurrency: number
  /** Returns a random number in [0, 1). */
  readonly random: () => number
  /**
   * Called with a token pair that could not be committed. Writes the pair to a file (I6), and resolves with `false` if
   * that is not possible.
   */
  readonly rescue: (pair: KeptPair) => Promise<boolean>
  /**
   * The last time at which the store may have lost writes, in epoch ms (`StoreConnection.serverChangedAt`); `null` if
   * there was none.
   */
  readonly storeChangedAt: () => number | null
  readonly report: (report: RefreshReport) => void
  /**
   * Receives each token request that got no usable response. If the provider has processed the request, the new token
   * pair is lost with its response, and this report explains a later failure `rotation_lost`.
   */
  readonly reportWithoutResult: (call: CallWithoutResult) => void
  /** Called and awaited at each failpoint, where a test can interrupt the refresh. Only tests set this function. */
  readonly failpoint?: (point: Failpoint, name: string) => Promise<void> | void
}

export interface CallWithoutResult extends ProviderResponse {
  readonly name: string
  /** Whether the provider may have processed the request. */
  readonly wasSent: boolean
}

export interface RefreshRoutine extends AsyncDisposable {
  /**
   * Refreshes a credential unless it already satisfies `goal`. The audit entry contains `who` and `reason`.
   *
   * @throws {IntegrationError} `store_unavailable` if the store cannot be used, in which case no refresh token was
   * sent; `shutting_down` if this process shuts down.
   */
  refresh(name: string, goal: RefreshGoal, who: string, reason?: string): Promise<RefreshResult>
  /** The credential with a token pair that is in memory and not stored yet (I6); `null` if there is none. */
  uncommitted(name: string): Credential | null
  /** The number of token pairs in memory that are not stored yet. */
  uncommittedCount(): number
}

/** The caller that has requested a refresh, and its reason, for the audit log. */
type Requester = Pick<AuditContext, 'who' | 'reason'>

/** A token pair that the provider has issued and the store has not accepted yet (I6). */
interface UncommittedRotation {
  readonly credential: Credential
  /** Resolves when the token pair is committed, superseded, rescued or dropped. */
  readonly done: Promise<void>
}

const REPORTED_OUTCOMES = {
  committed: 'refreshed',
  superseded: 'superseded',
  rescued: 'rotation_rescued',
  dropped: 'rotation_dropped',
} as const satisfies Record<string, RefreshReport['outcome']>

/**
 * The maximum accepted time until `nextTryAt` of a rejected grant, in milliseconds. It is longer than every delay
 * after which a rejected refresh token is sent again.
 */
const MAX_REJECTED_RETRY_DELAY_MS = 48 * 3_600_000

/** Returns the result if the stored fault or `nextTryAt` forbids a refresh now; `null` if a refresh may start. */
export function refreshBlocked(credential: Credential, now: number): RefreshResult | null {
  const { fault, nextTryAt } = credential
  // The refresh token of a grant that has ended is not sent again.
  if (fault !== null && isTerminal(fault)) return { kind: 'faulted', credential, fault }
  const maxDelayMs = isProvisional(fault) ? MAX_REJECTED_RETRY_DELAY_MS : 1.5 * RETRY_CAP_MS
  // A `nextTryAt` beyond the longest delay is ignored, because it was stored by a replica whose clock was ahead.
  if (nextTryAt === null || nextTryAt <= now || nextTryAt - now > maxDelayMs) return null
  return isProvisional(fault)
    ? { kind: 'faulted', credential, fault }
    : { kind: 'deferred', credential, retryAfterMs: nextTryAt - now }
}

export function createRefreshRoutine(deps: RefreshDeps): RefreshRoutine {
  const { store, provider, owner, timing, now, random, sleep } = deps
  const inFlight = new Map<string, Promise<RefreshResult>>()
  const uncommittedRotations = new Map<string, UncommittedRotation>()
  const semaphore = createSemaphore(deps.concurrency)
  const shutdown = new AbortController()
  let commitDeadlineAt = Number.POSITIVE_INFINITY
  // The pause between two attempts to commit is not aborted at shutdown, so that commits are retried at the same
  // intervals during shutdown.
  const neverAborted = new AbortController().signal
  const failpoint = async (point: Failpoint, name: string): Promise<void> =>
    deps.failpoint?.(point, name)

  // Callers in this process share one refresh of a credential (I1).
  async function refresh(
    name: string,
    goal: RefreshGoal,
    who: string,
    reason?: string,
  ): Promise<RefreshResult> {
    for (;;) {
      const running = inFlight.get(name)
      if (running === undefined) break
      const result = await running
      if (result.kind !== 'refreshed' || satisfiesGoal(result.credential, goal)) return result
    }
    if (shutdown.signal.aborted)
      throw new IntegrationError('shutting_down', 'the service is shutting down')
    const started = semaphore
      .run(() => acquireAndRefresh(name, goal, { who, reason }))
      .finally(() => inFlight.delete(name))
    inFlight.set(name, started)
    return started
  }

  const satisfiesGoal = (credential: Credential, goal: RefreshGoal): boolean =>
    goal.kind === 'newer'
      ? credential.version > goal.version
      : // The access token may still be valid, but the rejected refresh token must be sent again (I10).
        !isProvisional(credential.fault) &&
        freshness(credential, now(), deps.refreshAheadMs) === 'fresh'

  /**
   * Returns the result if the stored record satisfies the goal or forbids a refresh now; `null` if a refresh is needed.
   */
  function alreadySatisfied(credential: Credential, goal: RefreshGoal): RefreshResult | null {
    if (satisfiesGoal(credential, goal)) return { kind: 'refreshed', credential }
    return goal.kind === 'newer' && goal.force
      ? refreshBlocked({ ...credential, nextTryAt: null }, now())
      : refreshBlocked(credential, now())
  }

  // The lease prevents other replicas from refreshing the same credential (I1).
  async function acquireAndRefresh(
    name: string,
    wanted: RefreshGoal,
    requester: Requester,
  ): Promise<RefreshResult> {
    let goal = wanted
    let awaitedIntent = { fence: 0, until: 0 }
    const waitUntil = performance.now() + timing.waitTimeoutMs
    for (;;) {
      const rotation = uncommittedRotations.get(name)
      if (rotation !== undefined) {
        if (satisfiesGoal(rotation.credential, goal))
          return { kind: 'refreshed', credential: rotation.credential }
        await Promise.race([rotation.done, sleep(timing.pollMs, shutdown.signal)])
      } else {
        // While calls to the provider are blocked, no lease is acquired, and no intent or `nextTryAt` is stored. When
        // calls are allowed again, the first refresh of any credential is the probe.
        const heldBackMs = deps.heldBackMs()
        if (heldBackMs > 0) {
          const credential = await store.get(name)
          if (credential === null) return { kind: 'absent' }
          const satisfied = alreadySatisfied(credential, goal)
          return satisfied ?? { kind: 'deferred', credential, retryAfterMs: heldBackMs }
        }
        const acquired = await store.acquire(name, owner, timing.leaseMs)
        if (acquired.kind === 'absent') return acquired
        if (acquired.kind === 'acquired') {
          const { leased } = acquired
          const { intent } = leased
          // The end of the wait is computed only once for each intent, because the clock of the store may be set back.
          if (intent !== null && intent.fence !== awaitedIntent.fence) {
            const until = performance.now() + timing.intentMaxAgeMs - intent.ageMs
            awaitedIntent = { fence: intent.fence, until }
          }
          const inFlightMs = intent === null ? 0 : awaitedIntent.until - performance.now()
          const result = await refreshUnderLease(leased, goal, requester, inFlightMs)
          if (result === 'in flight') continue
          if (result !== null) return result
        }
        const polled = await pollRecord(name, goal)
        if (polled !== null) return polled
      }
      // After this process has waited for the refresh of another replica, it accepts the result of that refresh, even a
      // failure.
      goal = withoutForce(goal)
      if (performance.now() >= waitUntil || shutdown.signal.aborted) {
        return { kind: 'deferred', credential: null, retryAfterMs: 1_000 }
      }
    }
  }

  /** Polls the record for some time. Returns `null` if the record does not satisfy the goal by then. */
  async function pollRecord(name: string, goal: RefreshGoal): Promise<RefreshResult | null> {
    // After these polls, the caller of this function tries to acquire the lease again. The time between two such
    // attempts is short enough to replace a lease holder that has died, and long enough to cause little load while
    // the lease holder is alive.
    const until = performance.now() + POLLS_PER_ACQUIRE * timing.pollMs
    while (performance.now() < until && !shutdown.signal.aborted) {
      const credential = await store.get(name)
      if (credential === null) return { kind: 'absent' }
      const satisfied = alreadySatisfied(credential, withoutForce(goal))
      if (satisfied !== null) return satisfied
      await sleep(timing.pollMs, shutdown.signal)
    }
    return null
  }

  /**
   * Resolves with `null` if the credential must be acquired again: the lease was lost before a refresh token was sent, or
   * the store has lost the token pair whose refresh token was sent. If another process may have a request
   * in flight for the next `inFlightMs`, pauses and resolves with `in flight` (I5).
   */
  async function refreshUnderLease(
    leased: LeasedCredential,
    goal: RefreshGoal,
    requester: Requester,
    inFlightMs: number,
  ): Promise<RefreshResult | 'in flight' | null> {
    const { lease } = leased
    const satisfied = alreadySatisfied(leased.credential, goal) // The record was read under the lease (I2).
    if (satisfied !== null) {
      await store.release(lease)
      return satisfied
    }
    if (inFlightMs > 0 && !shutdown.signal.aborted) {
      await store.release(lease)
      await sleep(Math.min(inFlightMs, POLLS_PER_ACQUIRE * timing.pollMs), shutdown.signal)
      return 'in flight'
    }
    const renewal = startRenewal(lease)
    try {
      return await exchangeRefreshToken(leased, goal, requester, renewal)
    } catch (error) {
      // If the store is unavailable, no token was used (I3). The lease is released, so that other processes need not
      // wait for its expiry.
      if (hasCode(error, 'store_unavailable')) await store.release(lease).catch(() => {})
      throw error
    } finally {
      // The lease is renewed until the commit of the token pair begins. The commit itself stops the renewal.
      if (!uncommittedRotations.has(lease.name)) renewal.stop()
    }
  }

  async function exchangeRefreshToken(
    leased: LeasedCredential,
    goal: RefreshGoal,
    requester: Requester,
    renewal: LeaseRenewal,
  ): Promise<RefreshResult | null> {
    const { lease, credential, previous } = leased
    const { name } = lease
    if (leased.refreshToken === null) {
      const failure: RefreshFailure = {
        failureClass: 'no_refresh_token',
        response: { body: 'the grant has no refresh token', traceId: null },
        retryAfterMs: null,
        isAmbiguous: false,
      }
      return recordFailure(leased, goal, requester, failure, 0)
    }
    let isAmbiguous = leased.intent !== null
    let token: Secret = leased.refreshToken
    let retriesLeft = 1
    for (let calls = 1; ; calls += 1) {
      if (shutdown.signal.aborted) {
        await store.release(lease)
        return { kind: 'deferred', credential, retryAfterMs: 1_000 }
      }
      await failpoint('before intent', name)
      const requestedAt = performance.now()
      // No request is sent before the intent is stored (I3).
      const intent = await store.recordIntent(lease, timing.failoverDeferralMs)
      if (intent.kind === 'lost') return null
      if (intent.kind === 'deferred') {
        await store.release(lease)
        const retryAfterMs = Math.min(intent.retryAfterMs, DEFERRED_RETRY_MS)
        return { kind: 'deferred', credential, retryAfterMs }
      }
      await failpoint('after intent', name)
      // If this process was suspended for a long time after it had stored the intent, another process may consider the
      // intent expired and send the refresh token (I5). The intent is therefore stored again before the token is sent.
      if (performance.now() - requestedAt >= timing.ambiguousRetryDelayMs) {
        calls -= 1
        continue
      }
      const startedAt = now()
      const outcome = await provider.refresh(token)
      await failpoint('after response', name)
      const failed = (
        failureClass: RefreshFailureClass,
        response: ProviderResponse,
        retryAfterMs: number | null = null,
      ): Promise<RefreshResult> => {
        const failure = { failureClass, response, retryAfterMs, isAmbiguous }
        return recordFailure(leased, goal, requester, failure, calls)
      }
      switch (outcome.kind) {
        case 'granted': {
          const { tokens, oddities } = outcome
          const before = { ...leased, ...credential }
          const grant = renewedGrant(before, token, tokens, startedAt, deps.idleLimitMs)
          return commitRotation(leased, grant, requester, renewal, calls, oddities)
        }
        case 'never_sent':
        case 'unknown': {
          const { status, body, traceId } = outcome
          const wasSent = outcome.kind === 'unknown'
          const isPairUnread = wasSent && outcome.mayHoldTokens === true
          deps.reportWithoutResult({ name, wasSent, status, body, traceId })
          isAmbiguous ||= wasSent
          if (retriesLeft === 0 || isPairUnread) {
            return failed(
              status !== null && status >= 200 && status < 300
                ? 'provider_bad_response'
                : 'provider_unavailable',
              outcome,
              isPairUnread ? UNREAD_PAIR_RETRY_MS : null,
            )
          }
          retriesLeft -= 1
          await sleep(timing.ambiguousRetryDelayMs, shutdown.signal) // This is the only retry (I4).
          break
        }
        case 'throttled':
        case 'client_refused':
          return failed(outcome.kind, outcome, outcome.retryAfterMs)
        case 'refused': {
          if (outcome.error !== 'invalid_grant') return failed('provider_rejected', outcome)
          // Another process may have stored a newer token pair in the meantime. The grant has not ended in this case
          // (I9).
          const current = await store.get(name)
          if (current === null) return { kind: 'absent' }
          if (current.version > lease.version) return { kind: 'refreshed', credential: current }
          if (current.version < lease.version) {
            // The store has lost the rejected pair in a failover. The older pair is refreshed under a new lease.
            await store.release(lease)
            return null
          }
          if (
            token !== previous?.token &&
            previous !== null &&
            now() - previous.retiredAt < timing.graceMs &&
            !isProvisional(credential.fault) // The previous token is sent only once (I9).
          ) {
            token = previous.token
            break
          }
          const context = {
            at: now(),
            isDisconnectReported: goal.kind === 'newer' && goal.isDisconnectReported === true,
            isAmbiguous,
            storeChangedAt: deps.storeChangedAt(),
          }
          return failed(rejectionClass(leased, context), outcome)
        }
        default:
          return outcome satisfies never
      }
    }
  }

  // Commits a token pair. Keeps it in memory until it is stored (I6), and compares version and fence (I7).
  async function commitRotation(
    { lease, credential: before }: LeasedCredential,
    grant: Grant,
    requester: Requester,
    renewal: LeaseRenewal,
    calls: number,
    oddities: readonly string[] = [],
  ): Promise<RefreshResult> {
    const { name } = lease
    const credential = credentialOf(grant, lease.version + 1, before)
    const dueAt = refreshDueAt(grant, deps.refreshAheadMs)
    const reason = reasonWith(requester.reason, oddities)
    const context = { at: now(), ...requester, reason, what: 'refreshed' } as const
    const isNoticeNew =
      grant.expiryNoticeDays !== null && grant.expiryNoticeDays !== before.expiryNoticeDays
    const { promise: done, resolve } = Promise.withResolvers<void>()
    await failpoint('before commit', name)
    uncommittedRotations.set(name, { credential, done })
    let fenced = lease
    /** Tries once to commit the token pair. Returns `null` if the commit must be tried again. */
    const tryCommit = async (): Promise<'committed' | 'superseded' | null> => {
      try {
        const options = { isNoticeNew, version: credential.version }
        const outcome = await store.commit(fenced, grant, dueAt, context, options)
        if (outcome !== 'fenced') return outcome
        await store.release(fenced)
        const acquired = await store.acquire(name, owner, timing.leaseMs)
        // Only `store.commit` may decide that the token pair is superseded, because only `store.commit` waits until the
        // newer version is replicated.
        if (acquired.kind !== 'acquired') return null
        const current = acquired.leased.lease
        if (current.grantId === lease.grantId && current.version <= lease.version) {
          fenced = current
          return null
        }
        await store.release(current)
        fenced = lease
        // The store has an older version of another grant. If the company was connected again, the token pair is
        // superseded. If the store has lost the grant of the token pair, recent-pairs.ts stores this grant again.
        const isReconnected = acquired.leased.credential.refreshedAt > grant.refreshedAt
        return current.version <= lease.version && isReconnected ? 'superseded' : null
      } catch (error) {
        if (!hasCode(error, 'store_unavailable')) deps.onError(error)
        return null
      }
    }
    const finish = (outcome: keyof typeof REPORTED_OUTCOMES): void => {
      uncommittedRotations.delete(name)
      renewal.stop()
      resolve()
      if (outcome === 'committed') deps.notifyOutbox()
      const reported = { name, outcome: REPORTED_OUTCOMES[outcome], calls, traceId: null }
      deps.report({ ...reported, ...(oddities.length > 0 && { oddities }) })
    }
    /** Retries the commit in the background. The access token of the token pair is already issued in the meantime. */
    const retryCommit = async (): Promise<void> => {
      for (let attempt = 1; ; attempt += 1) {
        // The retries have no jitter, because the token pair can be lost until it is stored, and retries for a single
        // credential cause little load.
        await sleep(backoffMs(attempt, { baseMs: 100, capMs: 1_000, random: 1 }), neverAborted)
        const outcome = await tryCommit()
        if (outcome !== null) return finish(outcome)
        if (performance.now() <= commitDeadlineAt) continue
        const { version } = credential
        const { grantId } = lease
        const pair = {
          name,
          version,
          grantId,
          isNewGrant: false,
          grant,
          dueAt,
          context,
          isNoticeNew,
        }
        return finish((await deps.rescue(pair)) ? 'rescued' : 'dropped')
      }
    }
    const outcome = await tryCommit()
    if (outcome === null) {
      void retryCommit()
      return { kind: 'refreshed', credential }
    }
    finish(outcome)
    await failpoint('after commit', name)
    if (outcome === 'committed') return { kind: 'refreshed', credential }
    const current = await store.get(name)
    return current === null ? { kind: 'absent' } : { kind: 'refreshed', credential: current }
  }

  // Stores the fault of a failed refresh beside the tokens of the credential, which are kept (I9).
  async function recordFailure(
    { lease, credential }: LeasedCredential,
    goal: RefreshGoal,
    requester: Requester,
    failure: RefreshFailure,
    calls: number,
  ): Promise<RefreshResult> {
    const { failureClass, response } = failure
    const at = now()
    const settlement = settlementOf(credential, failure, {
      at,
      random: random(),
      isTokenNeeded:
        goal.kind === 'newer' || freshness(credential, at, deps.refreshAheadMs) === 'expired',
      rejectedGrantRetryDelaysMs: timing.rejectedGrantRetryDelaysMs,
      storeChangedAt: deps.storeChangedAt(),
    })
    const { attempts, nextTryAt, fault, isPublished } = settlement
    const { traceId } = response
    deps.report({ name: lease.name, outcome: failureClass, calls, traceId })
    const what = endsGrant(failureClass) ? 'faulted' : 'refresh_failed'
    const context = { at, ...requester, what, outcome: failureClass, traceId } as const
    const settled = await store.settle(lease, settlement, context).catch((error: unknown) => {
      // The stored intent is kept for the next process (I5). The caller gets the same result as if the outcome had been
      // stored.
      if (hasCode(error, 'store_unavailable')) return null
      throw error
    })
    if (settled === 'lost') {
      const current = await store.get(lease.name)
      if (current === null) return { kind: 'absent' }
      const satisfied = alreadySatisfied(current, goal)
      return satisfied ?? { kind: 'deferred', credential: current, retryAfterMs: 1_000 }
    }
    if (isPublished) deps.notifyOutbox()
    const failed = { ...credential, attempts, nextTryAt, fault: fault ?? credential.fault }
    return fault !== null && hasEndedGrant(fault)
      ? { kind: 'faulted', credential: failed, fault }
      : { kind: 'deferred', credential: failed, retryAfterMs: Math.max(0, (nextTryAt ?? at) - at) }
  }

  /**
   * Renews a lease until the renewal is stopped. Failed renewals are ignored, because the commit checks the lease (I7).
   */
  function startRenewal(lease: Lease): LeaseRenewal {
    const timer = setInterval(() => {
      store.renew(lease, timing.leaseMs).catch(() => {})
    }, timing.leaseMs / 3)
    return { stop: () => clearInterval(timer) }
  }

  return {
    refresh,
    uncommitted: (name) => uncommittedRotations.get(name)?.credential ?? null,
    uncommittedCount: () => uncommittedRotations.size,
    async [Symbol.asyncDispose]() {
      commitDeadlineAt = performance.now() + timing.commitDeadlineMs
      shutdown.abort()
      await Promise.allSettled(inFlight.values())
      await Promise.all([...uncommittedRotations.values()].map(({ done }) => done))
    },
  }
}

const withoutForce = (goal: RefreshGoal): RefreshGoal =>
  goal.kind === 'newer' ? { ...goal, force: false } : goal

interface LeaseRenewal {
  readonly stop: () => void
}
