/**
 * Completes an authorization: turns the provider's callback into a stored credential.
 *
 * C1  A callback from another browser than the one that started the authorization is rejected. Nothing is stored, and
 *     no request is sent to the provider.
 * C2  A state can be used only once, across all replicas. It counts as used only after its callback has got a permit
 *     ({@link createExchangeAdmission}), so the browser can repeat a callback that was rejected as `busy`.
 * C3  Several simultaneous callbacks may have the same state, code and realm, for example after a double click. The
 *     first one exchanges the code, and all of them get its result.
 */
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import { credentialName } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { createSemaphore, type QueueLimits } from '@integration-host/shared/process/limits'
import type { AuditCounter } from '../credential/audit-counter.ts'
import { givenLabels, type LabelsChange } from '../credential/labels.ts'
import {
  type Authorization,
  type AuthorizationRequest,
  type Callback,
  CLOCK_TOLERANCE_MS,
  type Decision,
  invalid,
} from './authorization-request.ts'
import { type AuthorizationStore, type CodeClaim, digest } from './authorization-store.ts'
import type { CodeExchanges } from './code-exchange.ts'
import type { ConnectLinkStore } from './connect-link-store.ts'

export type CompletedAuthorization =
  | {
      readonly kind: 'connected'
      readonly credential: CredentialView
      readonly returnTo: string | null
    }
  /**
   * The provider reports an error, for example because the company's owner has denied the authorization. Nothing is
   * stored.
   */
  | { readonly kind: 'denied'; readonly returnTo: string | null }

/**
 * Completes the authorization of a callback.
 *
 * @throws {IntegrationError} `authorization_invalid` or `realm_mismatch` if the callback does not match its
 * authorization request; `busy`, `code_exchange_failed`, `provider_unavailable`, `store_unavailable`.
 */
export type CompleteAuthorization = (callback: Callback) => Promise<CompletedAuthorization>

export interface CallbackDeps {
  readonly authorization: Authorization
  readonly authorizations: Pick<
    AuthorizationStore,
    'useState' | 'isStateUsed' | 'readLabels' | 'readCode'
  >
  readonly links: Pick<ConnectLinkStore, 'get'>
  readonly admission: ExchangeAdmission
  readonly exchanges: CodeExchanges
  readonly auditCounter: Pick<AuditCounter, 'count'>
  /** Returns the name by which people know the company of a credential; `null` if it has none, or is not stored. */
  readonly nameOf: (name: string) => Promise<string | null>
  readonly now: () => number
  readonly sleep: (ms: number) => Promise<void>
}

export function createCallbackHandler(deps: CallbackDeps): CompleteAuthorization {
  const { authorization, authorizations, admission, exchanges, auditCounter, now, sleep } = deps

  /**
   * Resolves with the claim of a code; `null` if there is none. Tries several times, because the callback that used the
   * state may not have claimed its code yet.
   */
  async function claimOf(code: string): Promise<CodeClaim | null> {
    for (let reads = 1; ; reads += 1) {
      const claim = await authorizations.readCode(code)
      if (claim !== null || reads === CLAIM_READS) return claim
      await sleep(CLAIM_READ_PAUSE_MS)
    }
  }

  let waiting = 0

  /**
   * Resolves with the result of the callback that used the state (C3).
   *
   * @throws {IntegrationError} `busy` if too many callbacks are already waiting.
   */
  async function resultOfFirst(
    { state, code, realm }: Callback,
    { mayBeFinished }: { readonly mayBeFinished: boolean },
  ): Promise<CompletedAuthorization> {
    if (waiting >= MAX_WAITING) throw busy()
    waiting += 1
    try {
      const claim = code === null || realm === null ? null : await claimOf(code)
      const isRepetition = claim?.state === digest(state) && claim.realm === realm
      if (code === null || !isRepetition || (claim.result !== null && !mayBeFinished))
        throw invalid('the state was used before')
      const credential = await exchanges.resultOf(code, claim)
      return { kind: 'connected', credential, returnTo: claim.returnTo }
    } finally {
      waiting -= 1
    }
  }

  /** Audits that another company was chosen, and resolves with the error that says so. */
  async function otherCompany(
    { expected, chosen }: Extract<Decision, { kind: 'other_company' }>,
    { isByVisitor, browser }: AuthorizationRequest,
    labels: LabelsChange | null,
  ): Promise<IntegrationError> {
    const name = credentialName(expected)
    // Anyone can visit the Reconnect URL. Such a visitor must not learn the label of a company whose id was guessed, nor
    // fill the history of this company: one entry without its name counts all visitors of a second.
    auditCounter.count(
      { name: isByVisitor ? '' : name, version: 0 },
      { who: 'browser', what: 'granted', outcome: 'realm_mismatch' },
    )
    // Without a browser that has begun the authorization, anyone who knows its state can send this callback.
    const label =
      isByVisitor || browser === null
        ? null
        : // The error must be reported even if the store cannot be read now.
          (labels?.label ?? (await deps.nameOf(name).catch(() => null)))
    const company = label === null ? expected : `${label} (${expected})`
    return new IntegrationError(
      'realm_mismatch',
      `This authorization was for the company ${company}, but the company ${chosen} was chosen at the provider. Nothing was stored. Start again, and choose the company ${company} there.`,
    )
  }

  async function labelsOf(
    state: string,
    { hasLabels, linkId }: AuthorizationRequest,
  ): Promise<LabelsChange | null> {
    if (!hasLabels) return null
    if (linkId === null) return authorizations.readLabels(state)
    const link = await deps.links.get(linkId)
    return link === null ? null : givenLabels(link)
  }

  return async (callback) => {
    const { state } = callback
    const request = authorization.requestOf(callback) // throws for another browser (C1)
    // The state is checked before a permit is requested, so that repeated callbacks do not wait for a permit. A
    // callback that arrives after the first callback has finished is a replay and gets no result.
    if (await authorizations.isStateUsed(state))
      return resultOfFirst(callback, { mayBeFinished: false })
    // Only a holder of a service key can get a state that is not bound to a browser. A callback with such a state
    // therefore gets a permit for holders of a key.
    const permit = await admission.admit(
      request.browser === null ? 'key' : 'browser',
      request.keyId ?? callback.network,
    )
    let isFirst = false
    try {
      // The labels are read before the state is marked as used, so that the callback can be repeated if the store is
      // unavailable. If the store has lost the labels, the company is connected without them.
      const labels = await labelsOf(state, request)
      const ttlMs = Math.max(0, request.expiresAt - now()) + CLOCK_TOLERANCE_MS
      isFirst = await authorizations.useState(state, ttlMs) // `true` only once per state (C2)
      if (isFirst) {
        const { returnTo, nonce, codeVerifier } = request
        const decision = await authorization.decisionOf(callback, request)
        if (decision.kind === 'denied') return { kind: 'denied', returnTo }
        if (decision.kind === 'other_company') throw await otherCompany(decision, request, labels)
        const { code, realm } = decision
        const wanted = {
          code,
          realm,
          state,
          nonce,
          codeVerifier,
          returnTo,
          who: 'browser',
          labels: labels ?? {},
          isByVisitor: request.isByVisitor,
        } as const
        return { kind: 'connected', credential: await exchanges.exchange(wanted), returnTo }
      }
    } finally {
      permit.release(isFirst)
    }
    // This callback and another callback with the same state arrived before the state was used. The other callback has
    // used the state, and may have finished while this callback waited for a permit.
    return resultOfFirst(callback, { mayBeFinished: true })
  }
}

/**
 * The maximum number of callbacks that wait for the result of another callback. Without this limit, a client could
 * repeat one callback on every connection of the service while the provider responds slowly. Waiting callbacks hold no
 * permit.
 */
const MAX_WAITING = 100
/**
 * The maximum number of times that a callback reads the store while it waits for the claim of its code. The callback
 * that used the state claims its code a few milliseconds later, or later still on a busy machine.
 */
const CLAIM_READS = 5
const CLAIM_READ_PAUSE_MS = 100

/** The kind of caller that causes a code exchange: a holder of a service key, or a browser without a key. */
type ExchangeCaller = 'browser' | 'key'

/** The number of code exchanges that one process runs at the same time, by kind of caller. */
const PERMITS: Readonly<Record<ExchangeCaller, number>> = { browser: 8, key: 8 }

const QUEUES: Readonly<Record<ExchangeCaller, QueueLimits>> = {
  browser: { queueLength: 32, waitMs: 4_000 },
  key: { queueLength: 512, waitMs: 30_000 },
}

/**
 * The minimum time for which a browser holds a permit, in milliseconds. With 8 permits, browsers cause at most 8
 * exchanges a second.
 */
const MIN_BROWSER_PERMIT_MS = 1_000

const RETRY_AFTER_SECONDS = 5

/** Returns the error for a caller that must try again later. */
export const busy = (): IntegrationError =>
  new IntegrationError('busy', 'too many authorizations are being completed; retry', {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  })

export type ExchangeAdmission = ReturnType<typeof createExchangeAdmission>

/**
 * Limits how many code exchanges run at the same time.
 *
 * Even a client without a service key can cause code exchanges: it starts an authorization and sends a callback with a
 * made-up code. Each exchange is a request with the client id of this installation. After too many requests, the
 * provider would throttle the refreshes of this installation as well.
 *
 * Holders of a service key have separate permits, so that other callers cannot delay them; the keys get their turns one
 * after the other. Browsers wait in a queue that is fair between their networks, so that a client that sends many
 * callbacks delays its own network.
 */
export function createExchangeAdmission() {
  const semaphores = {
    browser: createSemaphore(PERMITS.browser),
    key: createSemaphore(PERMITS.key),
  }
  return {
    /**
     * Waits for a permit. `lane` is the key of the caller, or its network: they get their turns one after the other.
     *
     * @throws {IntegrationError} `busy` if the queue is full or the wait is too long.
     */
    async admit(caller: ExchangeCaller, lane: string) {
      const release = await semaphores[caller].acquire({ ...QUEUES[caller], lane })
      if (release === null) throw busy()
      const admittedAt = performance.now()
      return {
        /**
         * Releases the permit. If `wasUsed` is false, the caller has sent and stored nothing, so another caller can get
         * the permit at once.
         */
        release(wasUsed: boolean): void {
          const heldMs = performance.now() - admittedAt
          if (!wasUsed || caller === 'key' || heldMs >= MIN_BROWSER_PERMIT_MS) release()
          // `unref` keeps this timer from delaying the shutdown of the process.
          else setTimeout(release, MIN_BROWSER_PERMIT_MS - heldMs).unref()
        },
      }
    },
  }
}
