/**
 * The refresh of a credential: one rotation at a time, and none lost while the provider makes recovery
 * possible.
 *
 * A refresh token is spent by showing it, and what it bought exists only in the answer. So every step is
 * arranged around one question: if all stopped here, could the next one go on?
 *
 *   take the lease → look again → write the intent → one POST → commit → (event, by the outbox relay)
 *
 * I1  One refresher per credential: a promise in this process, a lease with a fence over all replicas.
 *     Who does not get the lease watches the record; nobody queues for the lease.
 * I2  Under the lease the record is read again: what is no longer needed is not done.
 * I3  Nothing is sent before the intent is stored. It says which version is being spent, and proves that the
 *     store can be written; when it cannot, nothing was spent.
 * I4  One POST at a time, and never two whose answers could both arrive: a second one starts after the first
 *     is torn down and a quiet time has passed. The one retry is for a call that never left, or whose
 *     outcome is unknown; an answer is never asked for again.
 * I5  Only an answer clears an intent. Who finds one of a holder that is gone waits until that holder's call
 *     can no longer be under way, and shows the same token once more.
 * I6  A pair that was received is in memory until it is stored. While the store is away its access token is
 *     served, and the commit is tried until it lands or is overtaken. A process that shuts down tries for
 *     `commitDeadlineMs` more; a pair that is dropped then is reported as `rotation_dropped`.
 * I7  A commit compares version and fence. A newer fence means that somebody may be spending the same
 *     version: the pair is not thrown away, but committed under a lease of its own, if it still fits.
 * I8  A new grant moves the version, so whatever a refresh in flight brings is refused.
 * I9  A fault is laid over the credential, the tokens stay. Only `invalid_grant` ends a grant, and only after
 *     the record was read again and the previous token, while a provider may still accept it, was tried.
 * I10 A provider may respond with `invalid_grant` in an outage, and a rejected token is not used up. So the
 *     fault is provisional first: the same token is tried again after the delays of the profile, a few times
 *     in about a day, and only then is the fault final. A failure in between that says nothing of the grant
 *     leaves the provisional fault in place.
 */
import type { Fault } from '@integration-host/shared/contracts/credential'
import { hasCode, IntegrationError } from '@integration-host/shared/errors'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { Provider, ProviderResponse, TokenSet } from '../provider/provider.ts'
import {
  type Credential,
  credentialOf,
  expiryNotice,
  freshness,
  type Grant,
  grantLimits,
  refreshDueAt,
} from './credential.ts'
import type { CredentialStore, Custody, Lease } from './credential-store.ts'
import {
  type FaultClass,
  faultClasses,
  faultOf,
  isGrantRejected,
  isProvisional,
  isTerminal,
  RETRY_CAP_MS,
  retryDelayMs,
} from './fault.ts'

/** What a caller wants of a refresh. */
export type RefreshGoal =
  /** A credential that is not due. */
  | { readonly kind: 'fresh' }
  /** A pair newer than `version`. `isInsistent`: also when the last refresh has just failed. */
  | { readonly kind: 'newer'; readonly version: number; readonly isInsistent: boolean }

export type RefreshResult =
  | { readonly kind: 'refreshed'; readonly credential: Credential }
  /** Only a new grant can help. */
  | { readonly kind: 'faulted'; readonly credential: Credential; readonly fault: Fault }
  /** Not now: the provider is away or throttles, or another replica is still at it. */
  | {
      readonly kind: 'deferred'
      readonly credential: Credential | null
      readonly retryAfterMs: number
    }
  | { readonly kind: 'absent' }

/** Where a process may die, for tests that let it. */
export const refreshPoints = [
  'before intent',
  'after intent',
  'after answer',
  'before commit',
  'after commit',
] as const
export type RefreshPoint = (typeof refreshPoints)[number]

export interface RefreshTiming {
  /** A lease lasts this long unless renewed, which happens three times in it. Longer than a call takes. */
  readonly leaseMs: number
  /** I5: the age of a stranger's intent from which on its call cannot be under way any more. */
  readonly strangerMs: number
  /** I4: between a call of ours whose outcome is unknown and the next one. */
  readonly quietMs: number
  readonly watchMs: number
  /** How long a caller waits for another replica. */
  readonly patienceMs: number
  /** I6: how long a process that shuts down keeps trying to store a rotated pair. */
  readonly commitDeadlineMs: number
  /** How long after its rotation a previous token is still tried when the current one is rejected. */
  readonly graceMs: number
  /** I10: before each further try of a rejected refresh token; empty: the first rejection is final. */
  readonly rejectedGrantRetryDelaysMs: readonly number[]
}

/** For a provider request of at most 10 s. What depends on the provider is the profile's. */
export const refreshTiming: Omit<RefreshTiming, 'graceMs' | 'rejectedGrantRetryDelaysMs'> = {
  leaseMs: 15_000,
  strangerMs: 12_000,
  quietMs: 2_000,
  watchMs: 50,
  patienceMs: 25_000,
  commitDeadlineMs: 5_000,
}

/** What became of one refresh under the lease, for logs and metrics. Holds no secret. */
export interface RefreshReport {
  readonly name: string
  readonly outcome:
    | 'refreshed'
    | FaultClass
    | 'throttled'
    | 'client_refused'
    /** Another write moved the version while the provider was called: that pair is the newer one. */
    | 'superseded'
    /** The provider rotated the refresh token, and the new pair was lost with this process. */
    | 'rotation_dropped'
  readonly calls: number
  readonly traceId: string | null
}

export interface RefreshDeps {
  readonly store: Pick<
    CredentialStore,
    'get' | 'acquire' | 'renew' | 'release' | 'recordIntent' | 'commit' | 'settle'
  >
  readonly provider: Pick<Provider, 'refresh'>
  /** Milliseconds for which no call is made because the provider rejects the client credentials; else 0. */
  readonly heldBackMs: () => number
  /** This process, to the leases. */
  readonly owner: string
  readonly refreshAheadMs: number
  /** After how long without a refresh the provider ends a grant. */
  readonly idleLimitMs: number
  readonly timing: RefreshTiming
  /** Refreshes in hand at a time, over all realms. */
  readonly concurrency: number
  readonly now: () => number
  readonly random: () => number
  /** Resolves after `ms`, or at once when the signal aborts. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>
  /** The outbox has something new. */
  readonly announce: () => void
  readonly report: (report: RefreshReport) => void
  /** A defect while a received pair is being stored; the pair is kept and tried again. */
  readonly onError: (error: unknown) => void
  /** Awaited at each named point. */
  readonly reach?: (point: RefreshPoint, name: string) => Promise<void> | void
}

export interface RefreshRoutine extends AsyncDisposable {
  /** @throws {IntegrationError} `store_unavailable`: nothing was spent. `shutting_down`. */
  refresh(name: string, goal: RefreshGoal, who: string): Promise<RefreshResult>
  /** The pair that is in memory and not stored yet (I6). */
  unstored(name: string): Credential | null
  /** How many pairs are in memory only: the provider has rotated them, and a lost process loses them. */
  uncommitted(): number
}

interface Landing {
  readonly credential: Credential
  readonly done: Promise<void>
}

/** Longer than any pause before a rejected refresh token is tried again. */
const LONGEST_REJECTED_PAUSE_MS = 48 * 3_600_000

/** Why a credential is not refreshed now according to its record; `null` if nothing prevents it. */
export function standstill(credential: Credential, now: number): RefreshResult | null {
  const { fault, nextTryAt } = credential
  // A grant that has ended is not shown to the provider again.
  if (fault !== null && isTerminal(fault)) return { kind: 'faulted', credential, fault }
  const longestPauseMs = isProvisional(fault) ? LONGEST_REJECTED_PAUSE_MS : 1.5 * RETRY_CAP_MS
  // A time beyond the longest pause was written by a clock that was ahead.
  if (nextTryAt === null || nextTryAt <= now || nextTryAt - now > longestPauseMs) return null
  return isProvisional(fault)
    ? { kind: 'faulted', credential, fault }
    : { kind: 'deferred', credential, retryAfterMs: nextTryAt - now }
}

/** A refresh that brought no pair. */
interface Failure {
  readonly faultClass: FaultClass | 'throttled' | 'client_refused'
  readonly answer: ProviderResponse
  readonly retryAfterMs: number | null
  readonly isInDoubt: boolean
  readonly calls: number
}

export function createRefreshRoutine(deps: RefreshDeps): RefreshRoutine {
  const { store, provider, owner, timing, now, random, sleep } = deps
  const flights = new Map<string, Promise<RefreshResult>>()
  const landings = new Map<string, Landing>()
  const slots = createSlots(deps.concurrency)
  const leaving = new AbortController()
  // A leaving process waits for the store as patiently as ever, only not as long.
  const unhurried = new AbortController().signal
  const reach = async (point: RefreshPoint, name: string): Promise<void> =>
    deps.reach?.(point, name)

  // I1, within the process.
  async function refresh(name: string, goal: RefreshGoal, who: string): Promise<RefreshResult> {
    for (;;) {
      const running = flights.get(name)
      if (running === undefined) break
      const result = await running
      if (result.kind !== 'refreshed' || answersGoal(result.credential, goal)) return result
    }
    if (leaving.signal.aborted)
      throw new IntegrationError('shutting_down', 'the service is leaving')
    const flight = slots.run(() => fly(name, goal, who)).finally(() => flights.delete(name))
    flights.set(name, flight)
    return flight
  }

  const answersGoal = (credential: Credential, goal: RefreshGoal): boolean =>
    goal.kind === 'newer'
      ? credential.version > goal.version
      : // I10: the access token may be valid still, but its refresh token is to be tried again.
        !isProvisional(credential.fault) &&
        freshness(credential, now(), deps.refreshAheadMs) === 'fresh'

  /** What a record says to a goal by itself; null: there is something to do. */
  function settledBy(credential: Credential, goal: RefreshGoal): RefreshResult | null {
    if (answersGoal(credential, goal)) return { kind: 'refreshed', credential }
    return goal.kind === 'newer' && goal.isInsistent
      ? standstill({ ...credential, nextTryAt: null }, now())
      : standstill(credential, now())
  }

  // I1, over the replicas.
  async function fly(name: string, wanted: RefreshGoal, who: string): Promise<RefreshResult> {
    let goal = wanted
    const patientUntil = performance.now() + timing.patienceMs
    for (;;) {
      const landing = landings.get(name)
      if (landing !== undefined) {
        if (answersGoal(landing.credential, goal))
          return { kind: 'refreshed', credential: landing.credential }
        await Promise.race([landing.done, sleep(timing.watchMs, leaving.signal)])
      } else {
        // Without a call to come there is nothing to take a lease or write an intent for, and the record keeps
        // no time to wait until: the first call after the delay is the probe, whichever credential it is for.
        const heldBackMs = deps.heldBackMs()
        if (heldBackMs > 0) {
          const credential = await store.get(name)
          if (credential === null) return { kind: 'absent' }
          const settled = settledBy(credential, goal)
          return settled ?? { kind: 'deferred', credential, retryAfterMs: heldBackMs }
        }
        const acquired = await store.acquire(name, owner, timing.leaseMs)
        if (acquired.kind === 'absent') return acquired
        if (acquired.kind === 'held') {
          const result = await underLease(acquired.custody, goal, who)
          if (result !== null) return result
        }
        const seen = await watch(name, goal)
        if (seen !== null) return seen
      }
      // Whoever has waited for another's try takes its result, and does not insist on one more.
      goal = patient(goal)
      if (performance.now() >= patientUntil || leaving.signal.aborted) {
        return { kind: 'deferred', credential: null, retryAfterMs: 1_000 }
      }
    }
  }

  /** Watches the record for a while; null when it still says nothing to the goal. */
  async function watch(name: string, goal: RefreshGoal): Promise<RefreshResult | null> {
    // Between two looks at the lease: a holder that died is noticed, one that lives is not disturbed.
    const until = performance.now() + 20 * timing.watchMs
    while (performance.now() < until && !leaving.signal.aborted) {
      const credential = await store.get(name)
      if (credential === null) return { kind: 'absent' }
      const settled = settledBy(credential, patient(goal))
      if (settled !== null) return settled
      await sleep(timing.watchMs, leaving.signal)
    }
    return null
  }

  /** @returns null when the lease was lost before anything was spent */
  async function underLease(
    custody: Custody,
    goal: RefreshGoal,
    who: string,
  ): Promise<RefreshResult | null> {
    const { lease } = custody
    const settled = settledBy(custody.credential, goal) // I2
    if (settled !== null) {
      await store.release(lease)
      return settled
    }
    const keeping = keepLease(lease)
    try {
      return await spend(custody, goal, who, keeping)
    } catch (error) {
      // Without the store nothing was spent (I3), so nobody has to wait for the lease to run out.
      if (hasCode(error, 'store_unavailable')) await store.release(lease).catch(() => {})
      throw error
    } finally {
      if (!landings.has(lease.name)) keeping.stop()
    }
  }

  async function spend(
    custody: Custody,
    goal: RefreshGoal,
    who: string,
    keeping: LeaseKeeper,
  ): Promise<RefreshResult | null> {
    const { lease, credential, previous } = custody
    const { name } = lease
    if (custody.refreshToken === null) {
      const answer = { status: null, body: 'the grant has no refresh token', traceId: null }
      return fail(custody, goal, who, {
        faultClass: 'no_refresh_token',
        answer,
        retryAfterMs: null,
        isInDoubt: false,
        calls: 0,
      })
    }
    let isInDoubt = custody.intent !== null
    if (custody.intent !== null)
      await sleep(Math.max(0, timing.strangerMs - custody.intent.ageMs), leaving.signal) // I5
    let token: Secret = custody.refreshToken
    let retriesLeft = 1
    for (let calls = 1; ; calls += 1) {
      if (leaving.signal.aborted) {
        await store.release(lease)
        return { kind: 'deferred', credential, retryAfterMs: 1_000 }
      }
      await reach('before intent', name)
      const askedAt = performance.now()
      if ((await store.recordIntent(lease)) === 'lost') return null // I3
      await reach('after intent', name)
      // Stopped in between for so long that our call could outlast the intent (I5): somebody else may be at it.
      if (performance.now() - askedAt >= timing.quietMs) {
        calls -= 1
        continue
      }
      const startedAt = now()
      const outcome = await provider.refresh(token)
      await reach('after answer', name)
      const failed = (
        faultClass: Failure['faultClass'],
        answer: ProviderResponse,
        retryAfterMs: number | null = null,
      ) => fail(custody, goal, who, { faultClass, answer, retryAfterMs, isInDoubt, calls })
      switch (outcome.kind) {
        case 'granted': {
          const grant = renewedGrant(custody, token, outcome.tokens, startedAt, deps.idleLimitMs)
          return land(custody, grant, who, keeping, calls)
        }
        case 'never_sent':
        case 'unknown': {
          isInDoubt ||= outcome.kind === 'unknown'
          if (retriesLeft === 0) {
            return failed(
              outcome.status === 200 ? 'provider_bad_response' : 'provider_unavailable',
              outcome,
            )
          }
          retriesLeft -= 1
          await sleep(timing.quietMs, leaving.signal) // I4
          break
        }
        case 'throttled':
        case 'client_refused':
          return failed(outcome.kind, outcome, outcome.retryAfterMs)
        case 'refused': {
          if (outcome.error !== 'invalid_grant') return failed('provider_rejected', outcome)
          // I9: somebody else may have brought a newer pair (I8).
          const seen = await store.get(name)
          if (seen === null) return { kind: 'absent' }
          if (seen.version !== lease.version) return { kind: 'refreshed', credential: seen }
          if (
            token !== previous?.token &&
            previous !== null &&
            now() - previous.retiredAt < timing.graceMs &&
            // I10: once. A provider may end a grant whose retired tokens it sees again and again.
            !isProvisional(credential.fault)
          ) {
            token = previous.token
            break
          }
          return failed(endOf(credential, isInDoubt, now()), outcome)
        }
        default:
          return outcome satisfies never
      }
    }
  }

  // I6, I7
  async function land(
    { lease, credential: before }: Custody,
    grant: Grant,
    who: string,
    keeping: LeaseKeeper,
    calls: number,
  ): Promise<RefreshResult> {
    const { name } = lease
    const credential = credentialOf(grant, lease.version + 1)
    const dueAt = refreshDueAt(grant, deps.refreshAheadMs)
    const deed = { at: now(), who, what: 'refreshed' } as const
    const isNoticeNew =
      grant.expiryNoticeDays !== null && grant.expiryNoticeDays !== before.expiryNoticeDays
    const { promise: done, resolve } = Promise.withResolvers<void>()
    await reach('before commit', name)
    landings.set(name, { credential, done })
    let fenced = lease
    const tryCommit = async (): Promise<'landed' | 'overtaken' | null> => {
      try {
        const verdict = await store.commit(fenced, grant, dueAt, deed, isNoticeNew)
        if (verdict === 'committed') return 'landed'
        if (verdict === 'superseded') return 'overtaken'
        const acquired = await store.acquire(name, owner, timing.leaseMs)
        if (acquired.kind === 'absent') return 'overtaken'
        if (acquired.kind === 'busy') return null
        fenced = acquired.custody.lease
        if (fenced.version === lease.version) return null
        await store.release(fenced)
        return 'overtaken'
      } catch (error) {
        if (!hasCode(error, 'store_unavailable')) deps.onError(error)
        return null
      }
    }
    const finish = (verdict: 'landed' | 'overtaken' | 'dropped'): void => {
      landings.delete(name)
      keeping.stop()
      resolve()
      if (verdict === 'landed') deps.announce()
      deps.report({
        name,
        outcome: REPORTED_OUTCOMES[verdict],
        calls,
        traceId: null,
      })
    }
    const verdict = await tryCommit()
    if (verdict === null) {
      void (async () => {
        for (let attempt = 1; ; attempt += 1) {
          await sleep(Math.min(1_000, 50 * 2 ** Math.min(attempt, 8)), unhurried)
          const later = await tryCommit()
          if (later !== null) return finish(later)
          if (leaving.signal.aborted && performance.now() > leavingUntil) return finish('dropped')
        }
      })()
      return { kind: 'refreshed', credential }
    }
    finish(verdict)
    await reach('after commit', name)
    if (verdict === 'landed') return { kind: 'refreshed', credential }
    const winner = await store.get(name)
    return winner === null ? { kind: 'absent' } : { kind: 'refreshed', credential: winner }
  }

  // I9
  async function fail(
    custody: Custody,
    goal: RefreshGoal,
    who: string,
    failure: Failure,
  ): Promise<RefreshResult> {
    const { lease, credential } = custody
    const { faultClass, answer, isInDoubt, calls } = failure
    const at = now()
    const isClient = faultClass === 'client_refused'
    const attempts = isClient ? credential.attempts : credential.attempts + 1
    const ofClass = faultClass in faultClasses ? faultClasses[faultClass as FaultClass] : null
    const standing = credential.fault
    // I10
    const rejections = ofClass?.isRejection === true ? (standing?.Rejections ?? 0) + 1 : 0
    const rejectedPauseMs =
      rejections === 0 ? null : (timing.rejectedGrantRetryDelaysMs[rejections - 1] ?? null)
    const ends = ofClass?.endsGrant === true && rejectedPauseMs === null
    const nextTryAt = ends
      ? null
      : at +
        (rejectedPauseMs ??
          // The delay of a probe is exact: jitter would only put off the call that finds the client accepted.
          (isClient ? failure.retryAfterMs : null) ??
          retryDelayMs(attempts, failure.retryAfterMs, random()))
    // While a valid token is served, a provider that is unavailable for a moment is no fault of the credential.
    const isNeeded =
      goal.kind === 'newer' || freshness(credential, at, deps.refreshAheadMs) === 'expired'
    let fault: Fault | null = null
    if (ofClass?.endsGrant === true || (isNeeded && !isClient && !isProvisional(standing))) {
      const laidClass = faultClass as FaultClass | 'throttled'
      fault = faultOf(
        lease.name,
        laidClass === 'throttled' ? 'provider_unavailable' : laidClass,
        answer,
        { at, attempts, rejections, retryAt: rejectedPauseMs === null ? null : nextTryAt },
      )
    } else if (isProvisional(standing) && nextTryAt !== null) {
      fault = { ...standing, NextTryAt: new Date(nextTryAt).toISOString() }
    }
    const isAnnounced =
      fault !== null &&
      (standing === null ||
        (isGrantRejected(fault) && !isGrantRejected(standing)) ||
        (isTerminal(fault) && !isTerminal(standing)))
    deps.report({ name: lease.name, outcome: faultClass, calls, traceId: answer.traceId })
    const what = ofClass?.endsGrant === true ? 'faulted' : 'refresh_failed'
    const settlement = { attempts, nextTryAt, fault, isAnnounced, keepsIntent: isInDoubt && !ends }
    const settled = await store
      .settle(lease, settlement, {
        at,
        who,
        what,
        outcome: faultClass,
        traceId: answer.traceId,
      })
      .catch((error: unknown) => {
        // The next one finds the intent (I5); the caller is told the same as if it had been written.
        if (hasCode(error, 'store_unavailable')) return null
        throw error
      })
    if (settled === 'lost') {
      const seen = await store.get(lease.name)
      if (seen === null) return { kind: 'absent' }
      return settledBy(seen, goal) ?? { kind: 'deferred', credential: seen, retryAfterMs: 1_000 }
    }
    if (isAnnounced) deps.announce()
    const marked = { ...credential, attempts, nextTryAt, fault: fault ?? credential.fault }
    return fault !== null && isGrantRejected(fault)
      ? { kind: 'faulted', credential: marked, fault }
      : { kind: 'deferred', credential: marked, retryAfterMs: Math.max(0, (nextTryAt ?? at) - at) }
  }

  /** Renews a lease until told to stop. A renewal that fails is not the end: the commit decides (I7). */
  function keepLease(lease: Lease): LeaseKeeper {
    const timer = setInterval(() => {
      store.renew(lease, timing.leaseMs).catch(() => {})
    }, timing.leaseMs / 3)
    return { stop: () => clearInterval(timer) }
  }

  let leavingUntil = Number.POSITIVE_INFINITY
  return {
    refresh,
    unstored: (name) => landings.get(name)?.credential ?? null,
    uncommitted: () => landings.size,
    async [Symbol.asyncDispose]() {
      leavingUntil = performance.now() + timing.commitDeadlineMs
      leaving.abort()
      await Promise.allSettled(flights.values())
      await Promise.all([...landings.values()].map(({ done }) => done))
    },
  }
}

const patient = (goal: RefreshGoal): RefreshGoal =>
  goal.kind === 'newer' ? { ...goal, isInsistent: false } : goal

const REPORTED_OUTCOMES = {
  landed: 'refreshed',
  overtaken: 'superseded',
  dropped: 'rotation_dropped',
} as const satisfies Record<string, RefreshReport['outcome']>

interface LeaseKeeper {
  readonly stop: () => void
}

/** Why a provider ended a grant, as far as its record can tell. */
function endOf(credential: Credential, isInDoubt: boolean, now: number): FaultClass {
  if (credential.hardExpiresAt !== null && now >= credential.hardExpiresAt) return 'hard_expired'
  if (now >= credential.idleExpiresAt) return 'idle_expired'
  return isInDoubt ? 'rotation_lost' : 'invalid_grant'
}

/** The pair that an answer makes of the one before. */
function renewedGrant(
  { credential, refreshToken, idToken, previous }: Custody,
  spent: Secret,
  tokens: TokenSet,
  startedAt: number,
  idleLimitMs: number,
): Grant {
  const next = tokens.refreshToken ?? spent // RFC 6749 §6: none in the answer means that the old one stays
  const limits = grantLimits(tokens, startedAt, idleLimitMs)
  const hardExpiresAt = limits.hardExpiresAt ?? credential.hardExpiresAt
  const isRotated = refreshToken !== null && next.reveal() !== refreshToken.reveal()
  return {
    name: credential.name,
    environment: credential.environment,
    // From the start of the request: the provider's clock for the token started no earlier.
    expiresAt: startedAt + Math.floor(tokens.lifetimeSeconds * 1_000),
    refreshedAt: startedAt,
    idleExpiresAt: limits.idleExpiresAt,
    hardExpiresAt,
    expiryNoticeDays: expiryNotice(hardExpiresAt, startedAt),
    accessToken: tokens.accessToken,
    refreshToken: next,
    idToken: tokens.idToken ?? idToken,
    previous: isRotated ? { token: refreshToken, retiredAt: startedAt } : previous,
  }
}

/** At most `limit` runs at a time, first come, first served. */
function createSlots(limit: number) {
  let free = limit
  const waiting: (() => void)[] = []
  return {
    async run<T>(task: () => Promise<T>): Promise<T> {
      if (free > 0) free -= 1
      else await new Promise<void>((resolve) => waiting.push(resolve))
      try {
        return await task()
      } finally {
        const next = waiting.shift()
        if (next === undefined) free += 1
        else next()
      }
    },
  }
}
