/**
 * Completes an authorization: the provider's callback becomes a stored credential.
 *
 * C1  A callback from another browser than the one that started the authorization is rejected. Nothing is stored, and
 *     no request is sent to the provider.
 * C2  A state can be used only once, across all replicas. It counts as used only after its callback has got a permit
 *     (exchange-admission.ts). So the browser can repeat a callback that was rejected as `busy`.
 * C3  Of several simultaneous callbacks with the same state, code and realm, as after a double click, the first
 *     callback exchanges the code, and all callbacks get the result of this exchange.
 */
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import type { Authorization, Callback } from './authorization-request.ts'
import { CLOCK_TOLERANCE_MS, invalid } from './authorization-request.ts'
import type { AuthorizationStore, CodeClaim } from './authorization-store.ts'
import type { CodeExchanges } from './code-exchange.ts'
import { digest } from './digest.ts'
import { busy, type ExchangeAdmission } from './exchange-admission.ts'

export type CompletedAuthorization =
  | {
      readonly kind: 'connected'
      readonly credential: CredentialView
      readonly returnTo: string | null
    }
  /** The provider reports an error, or the company's owner has denied the authorization. Nothing is stored. */
  | { readonly kind: 'denied'; readonly returnTo: string | null }

/**
 * Completes the authorization to which a callback belongs.
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
  readonly admission: ExchangeAdmission
  readonly exchanges: CodeExchanges
  readonly now: () => number
  readonly sleep: (ms: number) => Promise<void>
}

export function createCallbackHandler(deps: CallbackDeps): CompleteAuthorization {
  const { authorization, authorizations, admission, exchanges, now, sleep } = deps

  /**
   * Resolves with the claim of a code; `null` if there is none. The claim is read several times, because the callback
   * that has used the state may not have claimed its code yet.
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
   * Resolves with the result of the callback that has used the state (C3).
   *
   * @throws {IntegrationError} `busy` if too many callbacks wait already.
   */
  async function resultOfFirst(
    callback: Callback,
    options: { readonly mayBeFinished: boolean },
  ): Promise<CompletedAuthorization> {
    if (waiting >= MAX_WAITING) throw busy()
    waiting += 1
    try {
      return await waitForFirst(callback, options)
    } finally {
      waiting -= 1
    }
  }

  async function waitForFirst(
    { state, code, realm }: Callback,
    { mayBeFinished }: { readonly mayBeFinished: boolean },
  ): Promise<CompletedAuthorization> {
    const claim = code === null || realm === null ? null : await claimOf(code)
    const isRepetition = claim?.state === digest(state) && claim.realm === realm
    if (code === null || !isRepetition || (claim.result !== null && !mayBeFinished))
      throw invalid('the state was used before')
    const credential = await exchanges.resultOf(code, claim)
    return { kind: 'connected', credential, returnTo: claim.returnTo }
  }

  return async (callback) => {
    const { state } = callback
    const request = authorization.requestOf(callback) // throws for another browser (C1)
    // The state is checked before a permit is requested, so that repeated callbacks do not wait for a permit. A
    // callback that arrives after the first callback has finished is a replay and gets no result.
    if (await authorizations.isStateUsed(state))
      return resultOfFirst(callback, { mayBeFinished: false })
    // Only a holder of a service key can get a state that is not bound to a browser. So a callback with such a state
    // gets one of the permits for holders of a key.
    const permit = await admission.admit(request.browser === null ? 'key' : 'browser')
    let isFirst = false
    try {
      // The labels are read before the state is marked as used. If the store is unavailable, the callback can therefore
      // be repeated. If the store has lost the labels, the company is connected without them.
      const labels = request.hasLabels ? await authorizations.readLabels(state) : null
      const ttlMs = Math.max(0, request.expiresAt - now()) + CLOCK_TOLERANCE_MS
      isFirst = await authorizations.useState(state, ttlMs) // `true` only once per state (C2)
      if (isFirst) {
        const { returnTo, nonce, codeVerifier } = request
        const decision = await authorization.decisionOf(callback, request)
        if (decision.kind === 'denied') return { kind: 'denied', returnTo }
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
    // Two callbacks arrived before the state was used. The other callback may have finished while this callback waited
    // for a permit.
    return resultOfFirst(callback, { mayBeFinished: true })
  }
}

/**
 * How many callbacks may wait for the result of another callback. Waiting callbacks hold no permit. Without this limit,
 * a client could repeat one callback on every connection of the service while the provider responds slowly.
 */
const MAX_WAITING = 100
/**
 * How often a callback tries to read the claim of a code. The callback that has used the state claims its code a few
 * milliseconds later, or later still on a busy machine.
 */
const CLAIM_READS = 5
const CLAIM_READ_PAUSE_MS = 100
