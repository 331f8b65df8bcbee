/**
 * Exchanges an authorization code for a stored credential.
 *
 * E1  A caller must claim a code before it sends the code to the provider. Only one caller over all replicas gets the
 *     claim, because providers revoke the tokens of a code that is presented a second time (RFC 6749 §4.1.2). All other
 *     callers with the same code get the result of the caller that has the claim.
 * E2  For a holder of a service key, a request is retried at most twice, if it was not sent or its outcome is unknown.
 *     It is never retried after a usable response. For a browser, a request is never retried: any client can send a
 *     callback with a made-up code, which must not cause more than one request per configured client secret.
 * E3  A received grant is stored even if the store is unavailable for a while. Nothing is stored before a complete,
 *     valid response.
 * E4  The user of the browser can change the realm in a callback, but not the realm in the id token, which comes from
 *     the provider. If the id token names another company, the tokens are not stored. If the id token names no company,
 *     the realm of the callback is used. The first API call then reveals a wrong realm, because the accounting API
 *     accepts a token only for its own company (docs/adr/0017).
 */
import { randomUUID } from 'node:crypto'
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import { credentialName } from '@integration-host/shared/contracts/realm'
import { hasCode, IntegrationError } from '@integration-host/shared/errors'
import { backoffMs } from '@integration-host/shared/process/backoff'
import { createPendingWork } from '@integration-host/shared/process/pending-work'
import { Secret } from '@integration-host/shared/secrets/secret'
import { type Grant, grantTimes, refreshDueAt, viewOf } from '../credential/credential.ts'
import type { CredentialStore } from '../credential/credential-store.ts'
import type { CustodyDeps } from '../credential/custody-deps.ts'
import { hasEndedGrant } from '../credential/fault.ts'
import type { LabelsChange } from '../credential/labels.ts'
import type { AuditCounter } from '../credential/audit-counter.ts'
import { auditFactOf, reasonWith } from '../credential/outbox.ts'
import type { ExchangeOutcome, Provider } from '../provider/provider.ts'
import {
  type AuthorizationStore,
  type CodeClaim,
  digest,
  type ExchangeResult,
} from './authorization-store.ts'

export interface CodeToExchange {
  readonly code: string
  readonly realm: string
  /**
   * The members from `state` to `returnTo` come from the authorization request of this service. All four are `null`
   * if another application received the code.
   */
  readonly state: string | null
  readonly nonce: string | null
  readonly codeVerifier: string | null
  readonly returnTo: string | null
  /** The caller as the audit log names it: `browser`, or a service key. */
  readonly who: string
  /** The label and tags for the credential. */
  readonly labels: LabelsChange
  /** Whether a visitor of the Reconnect URL started the authorization. */
  readonly isByVisitor: boolean
}

export interface CodeExchangeDeps extends Pick<
  CustodyDeps,
  'refreshAheadMs' | 'idleLimitMs' | 'now' | 'sleep' | 'notifyOutbox'
> {
  readonly authorizations: Pick<AuthorizationStore, 'claimCode' | 'readCode' | 'settleCode'>
  readonly provider: Pick<Provider, 'exchangeCode'>
  readonly store: Pick<CredentialStore, 'get' | 'put' | 'record'>
  readonly auditCounter: Pick<AuditCounter, 'count'>
  readonly report: (report: {
    readonly name: string
    readonly outcome: string
    readonly calls: number
    readonly traceId: string | null
    /** The OAuth error with which the provider rejected the code. */
    readonly error?: string
    /** The invalid member of the id token, and by how much the clocks differ if that explains it. */
    readonly member?: string
    readonly clockAheadSeconds?: number | null
    /** How the accepted token response differs from RFC 6749; absent if it does not. */
    readonly oddities?: readonly string[]
  }) => void
}

/**
 * The audit context of failed code exchanges of browsers. All these failures have the same outcome, so that the
 * failures of one second share one audit entry (audit-counter.ts).
 */
const FAILED_IN_BROWSER = {
  who: 'browser',
  what: 'granted',
  outcome: 'code_exchange_failed',
} as const

const KEY_RETRIES = 2
const RETRY_PAUSE_MS = 500
/**
 * Milliseconds after which a code can be claimed again. A process that has claimed a code and not finished within this
 * time has died.
 */
const CLAIM_TTL_MS = 60_000
const RESULT_TTL_MS = 10 * 60_000
const STORE_WAIT_MS = 5_000

export type CodeExchanges = ReturnType<typeof createCodeExchanges>

export function createCodeExchanges(deps: CodeExchangeDeps) {
  const { authorizations, provider, store, now, sleep } = deps
  const shutdown = new AbortController()
  const inFlight = createPendingWork()

  // Retries only for holders of a service key, and only without a usable response (E2).
  async function obtain(wanted: CodeToExchange): Promise<{
    readonly outcome: ExchangeOutcome
    readonly startedAt: number
    readonly calls: number
  }> {
    const retries = wanted.who === 'browser' ? 0 : KEY_RETRIES
    for (let calls = 1; ; calls += 1) {
      const startedAt = now()
      const outcome = await provider.exchangeCode({
        code: new Secret(wanted.code),
        codeVerifier: wanted.codeVerifier === null ? null : new Secret(wanted.codeVerifier),
        nonce: wanted.nonce,
      })
      const isRetryable = outcome.kind === 'never_sent' || outcome.kind === 'unknown'
      if (!isRetryable || calls > retries || shutdown.signal.aborted)
        return { outcome, startedAt, calls }
      await sleep(RETRY_PAUSE_MS * calls, shutdown.signal)
    }
  }

  // Retries the write until the store is available or the process shuts down (E3).
  async function storeGrant(
    grant: Grant,
    who: string,
    oddities: readonly string[],
  ): Promise<CredentialView> {
    const id = randomUUID()
    for (let attempt = 1; ; attempt += 1) {
      try {
        const reason = reasonWith(undefined, oddities)
        const context = { at: now(), who, what: 'granted', reason } as const
        const dueAt = refreshDueAt(grant, deps.refreshAheadMs)
        const credential = await store.put(grant, dueAt, context, { id })
        deps.notifyOutbox()
        return viewOf(credential, deps.refreshAheadMs)
      } catch (error) {
        if (!hasCode(error, 'store_unavailable') || shutdown.signal.aborted) throw error
        await sleep(backoffMs(attempt, { baseMs: 100, capMs: 1_000, random: 1 }), shutdown.signal)
      }
    }
  }

  const isConnected = async (name: string): Promise<boolean> => {
    const credential = await store.get(name)
    return credential !== null && !hasEndedGrant(credential.fault)
  }

  async function storeOutcome(
    { realm, who, labels, isByVisitor }: CodeToExchange,
    outcome: ExchangeOutcome,
    startedAt: number,
  ): Promise<ExchangeResult> {
    if (outcome.kind !== 'granted') return { kind: 'failed', ...failureOf(outcome) }
    const { tokens, oddities = [] } = outcome
    // The realm in the id token takes precedence, because the user of the browser can change the realm of the callback
    // (E4).
    if (tokens.realm !== null && tokens.realm !== realm) {
      const detail = 'the provider issued tokens of another company than the callback names'
      return { kind: 'failed', code: 'realm_mismatch', detail }
    }
    // If the id token names no realm, the realm of the callback may be wrong. The new grant may therefore replace only
    // a grant that has ended, and not the working grant of another company (E4).
    if (isByVisitor && tokens.realm === null && (await isConnected(credentialName(realm)))) {
      const detail =
        'the company is connected already, and the provider does not confirm that it was chosen; nothing was changed'
      return { kind: 'failed', code: 'realm_mismatch', detail }
    }
    const { accessToken, refreshToken, idToken } = tokens
    const grant: Grant = {
      name: credentialName(realm),
      environment: realm,
      ...grantTimes(tokens, startedAt, deps.idleLimitMs),
      accessToken,
      refreshToken,
      idToken,
      previous: null,
      ...labels,
      isUnused: true,
    }
    return { kind: 'stored', credential: await storeGrant(grant, who, oddities) }
  }

  async function auditFailure(name: string, who: string, outcome: string): Promise<void> {
    // Failures are counted without the realm, because any client can cause failed exchanges under realms of its choice.
    // One audit entry per failure would displace all other entries from the audit log, whose length is limited.
    if (who === 'browser')
      return deps.auditCounter.count({ name: '', version: 0 }, FAILED_IN_BROWSER)
    const context = { at: now(), who, what: 'granted', outcome } as const
    // If the audit entry cannot be stored, the caller still gets the error of the code exchange.
    await store.record([auditFactOf({ name, version: 0 }, context)]).catch(() => {})
  }

  async function claimed(wanted: CodeToExchange, claim: CodeClaim): Promise<ExchangeResult> {
    const name = credentialName(wanted.realm)
    const { outcome, startedAt, calls } = await obtain(wanted)
    deps.report({
      name,
      outcome: outcome.kind,
      calls,
      traceId: 'traceId' in outcome ? outcome.traceId : null,
      ...(outcome.kind === 'refused' && { error: outcome.error }),
      ...(outcome.kind === 'invalid_id_token' && {
        member: outcome.member,
        clockAheadSeconds: outcome.clockAheadSeconds ?? null,
      }),
      ...(outcome.kind === 'granted' &&
        outcome.oddities !== undefined && { oddities: outcome.oddities }),
    })
    const result = await storeOutcome(wanted, outcome, startedAt)
    if (result.kind === 'failed') await auditFailure(name, wanted.who, result.code)
    await authorizations.settleCode(wanted.code, { ...claim, result }, RESULT_TTL_MS).catch(() => {
      // The error is ignored, because the credential is already stored and the claim expires by itself.
    })
    return result
  }

  /** The current polls of the store, by authorization code. */
  const polls = new Map<string, Promise<ExchangeResult>>()

  /**
   * Waits for the result of the caller that has claimed a code. All callers that wait for the same code share one poll,
   * so that repeated callbacks cause no additional reads.
   */
  function awaitResult(code: string, claim: CodeClaim): Promise<ExchangeResult> {
    if (claim.result !== null) return Promise.resolve(claim.result)
    let poll = polls.get(code)
    if (poll === undefined) {
      poll = pollResult(code, claim).finally(() => polls.delete(code))
      polls.set(code, poll)
    }
    return poll
  }

  async function pollResult(code: string, first: CodeClaim): Promise<ExchangeResult> {
    const until = performance.now() + CLAIM_TTL_MS
    for (
      let claim: CodeClaim | null = first;
      claim !== null && performance.now() < until;
      claim = await authorizations.readCode(code)
    ) {
      if (claim.result !== null) return claim.result
      if (shutdown.signal.aborted) break
      await sleep(50, shutdown.signal)
    }
    return {
      kind: 'failed',
      code: 'code_exchange_failed',
      detail: 'another exchange of this code did not finish; start the authorization again',
    }
  }

  function settled(result: ExchangeResult): CredentialView {
    if (result.kind === 'stored') return result.credential
    throw new IntegrationError(result.code, result.detail)
  }

  return {
    /**
     * Resolves with the credential that this call, or an earlier call with the same code, has stored.
     *
     * @throws {IntegrationError} `code_exchange_failed`, `provider_unavailable`, `store_unavailable`;
     * `authorization_invalid` if the code was issued for another company.
     */
    async exchange(wanted: CodeToExchange): Promise<CredentialView> {
      const claim: CodeClaim = {
        realm: wanted.realm,
        state: wanted.state === null ? null : digest(wanted.state),
        returnTo: wanted.returnTo,
        result: null,
      }
      const first = await authorizations.claimCode(wanted.code, claim, CLAIM_TTL_MS) // only the first claimant sends the code (E1)
      if (first !== null && first.realm !== wanted.realm) {
        throw new IntegrationError(
          'authorization_invalid',
          'the code was issued for another company',
        )
      }
      if (first !== null) return settled(await awaitResult(wanted.code, first))
      const work = inFlight.add(claimed(wanted, claim))
      // The exchange continues until the grant is stored (E3), but the caller waits only for a limited time.
      const settledFirst = new AbortController()
      const late = sleep(CLAIM_TTL_MS / 2 + STORE_WAIT_MS, settledFirst.signal).then(() => null)
      try {
        const result = await Promise.race([work, late])
        if (result !== null) return settled(result)
      } finally {
        settledFirst.abort()
      }
      throw new IntegrationError('store_unavailable', 'the credential is not stored yet; retry', {
        retryAfterSeconds: 5,
      })
    },

    /**
     * Waits for the caller that has claimed the code, and resolves with its result.
     *
     * @throws {IntegrationError} the error of that caller if its exchange fails.
     */
    resultOf: async (code: string, claim: CodeClaim): Promise<CredentialView> =>
      settled(await awaitResult(code, claim)),

    async [Symbol.asyncDispose](): Promise<void> {
      shutdown.abort()
      await inFlight.ended()
    },
  }
}

function failureOf(outcome: Exclude<ExchangeOutcome, { kind: 'granted' }>): {
  readonly code: 'code_exchange_failed'
  readonly detail: string
} {
  const trace = outcome.traceId === null ? '' : ` (trace id ${outcome.traceId})`
  return { code: 'code_exchange_failed', detail: `${reasonOf(outcome)}${trace}` }
}

const clockText = (aheadSeconds: number | null = null): string =>
  aheadSeconds === null
    ? ''
    : ` (the clock of this computer is ${Math.abs(aheadSeconds)} s ${
        aheadSeconds > 0 ? 'behind' : 'ahead of'
      } the clock of the provider: correct it)`

function reasonOf(outcome: Exclude<ExchangeOutcome, { kind: 'granted' }>): string {
  switch (outcome.kind) {
    case 'never_sent':
      return 'the provider could not be reached'
    case 'unknown':
      return 'the provider gave no usable response; the code may be used up'
    case 'throttled':
      return 'the provider throttles; start the authorization again later'
    case 'client_refused':
      return 'the provider rejects the credentials of this application'
    case 'invalid_id_token':
      return `the id token of the provider is not valid: ${outcome.member}${
        outcome.member === 'signature' ? ' (no published key verifies it)' : ''
      }${clockText(outcome.clockAheadSeconds)}; nothing was stored`
    case 'refused':
      return `the provider rejected the code: ${outcome.error}`
    default:
      return outcome satisfies never
  }
}
