/** Derives the outcome of a step from the outcome of one of its calls. */
import { realmOf } from '@integration-host/shared/contracts/realm'
import { parseRetryAfter } from '@integration-host/shared/http/header-list'
import { DOCUMENT_LIMITS, jsonExcess, parseJson } from '@integration-host/shared/json'
import {
  type ProviderFault,
  providerFaultClasses,
  providerReason,
} from '@integration-host/shared/provider-profile/provider-fault'
import { coolDownMs, type CoolDowns } from './cool-downs.ts'
import { type CallOutcome, MAX_RESPONSE_BYTES } from './http-call.ts'
import { normalizedText } from '../run/json-normalization.ts'
import { WAITS_FOR_BOOKS } from '../run/status.ts'
import { NO_RESPONSE, type Response, type StepOutcome } from '../run/progress.ts'
import { leavesDoubt, verdictOf } from '../run/retry-policy.ts'
import type { Gateway } from './step-request.ts'
import { thrownText } from './thrown-text.ts'

/** The outcomes of a place with children. */
type PlaceKind = 'children' | 'undo_children' | 'joining'

/** An outcome that ends a step before its function returns. */
export type EarlyOutcome = Exclude<
  StepOutcome,
  { readonly kind: 'completed' | 'skipped' | 'parked' | 'paused' | 'undone' | 'left' | PlaceKind }
>

export interface JudgeDeps {
  readonly coolDowns: CoolDowns
  readonly gateway: Gateway
  /** Whether the internet is reachable. If not, a failed call does not count as an attempt of the step. */
  readonly isOnline: () => Promise<boolean>
  /** Returns epoch ms. The time is needed to convert a `Retry-After` that is a date. */
  readonly now: () => number
}

const MAX_ERROR_LENGTH = 1_000

/** Shortens an error text to the maximum stored length, and replaces characters that PostgreSQL cannot store. */
export const shortText = (text: string): string => normalizedText(text.slice(0, MAX_ERROR_LENGTH))

/** Whether a call may have taken effect although no response confirms the effect. If so, the step is in doubt. */
export const mayHaveTakenEffect = (outcome: CallOutcome): boolean =>
  outcome.kind === 'failed' || outcome.kind === 'aborted'
    ? outcome.isSent
    : verdictOf(outcome.status) === 'completed'
      ? outcome.kind !== 'answered' || outcome.inPlaceOfJson !== undefined
      : leavesDoubt(outcome.status)

/** The calls that a cool-down delays: those with the same credential, or those to the same target. */
export interface CallOwner {
  readonly credential: string | undefined
  /** The name of the target for cool-downs, `target:<Process>/<name>`; `undefined` if the call has no target. */
  readonly targetKey: string | undefined
}

/**
 * Whether `fetch` returns a response with this status to the step. A response with any other status concerns the
 * credential or the target as a whole, so it ends the attempt as in `execute`.
 */
export function isForStep(
  outcome: CallOutcome,
  { credential, targetKey }: CallOwner,
  now: number,
): outcome is CallOutcome & { readonly kind: 'answered' } {
  if (outcome.kind !== 'answered' || outcome.inPlaceOfJson !== undefined) return false
  const { status } = outcome
  if (credential !== undefined)
    return ![UNAUTHORIZED, FAILED_DEPENDENCY, TOO_MANY_REQUESTS].includes(status)
  return targetKey === undefined || !isBusy(status, parseRetryAfter(outcome.retryAfter, now))
}

/**
 * Returns for how many milliseconds a target must not be called after this response; `null` if the response starts no
 * cool-down.
 */
export function coolDownOf(outcome: CallOutcome, now: number): number | null {
  if (!('status' in outcome)) return null
  const retryAfterMs = parseRetryAfter(outcome.retryAfter, now)
  return isBusy(outcome.status, retryAfterMs) ? coolDownMs(retryAfterMs) : null
}

/** Whether the response of a target starts a cool-down. */
const isBusy = (status: number, retryAfterMs: number | null): boolean =>
  status === TOO_MANY_REQUESTS || (status === SERVICE_UNAVAILABLE && retryAfterMs !== null)

/**
 * Returns the response of a successful call. For any other call it returns the outcome with which the step ends. `what`
 * names the call in error texts.
 */
export async function judgeCall(
  outcome: CallOutcome,
  what: string,
  { credential, targetKey }: CallOwner,
  { coolDowns, gateway, isOnline, now }: JudgeDeps,
): Promise<Response | EarlyOutcome> {
  if (outcome.kind === 'aborted' || outcome.kind === 'failed') {
    const reason = outcome.kind === 'failed' ? outcome.reason : 'aborted'
    const error = shortText(
      outcome.isSent ? `${what} got no response: ${reason}` : `${what} failed: ${reason}`,
    )
    // If the internet is unreachable, a failed call does not count as an attempt. An aborted call does not count
    // either.
    if (outcome.kind === 'aborted' || !(await isOnline()))
      return { kind: 'released', ...(outcome.isSent && { noResponse: error }) }
    const errorClass = outcome.isSent ? NO_RESPONSE : 'network'
    return { kind: 'retry', errorClass, error, response: null, retryAfterMs: null }
  }
  const verdict = verdictOf(outcome.status)
  if (outcome.kind === 'too_large' && verdict === 'completed')
    return {
      kind: 'failed',
      errorClass: 'response_too_large',
      error: shortText(
        `${what} responded with ${outcome.status} and more than ${MAX_RESPONSE_BYTES} bytes`,
      ),
      response: null,
    }
  if (outcome.kind === 'unreadable') {
    const { errorClass, why, status } = outcome
    const error = shortText(`${what} responded with ${status}, and the body is ${why}`)
    return { kind: 'failed', errorClass, error, response: { status, body: '' } }
  }
  const body = outcome.kind === 'too_large' ? '' : normalizedText(outcome.body)
  const response = { status: outcome.status, body }
  const answered = `${what} responded with ${outcome.status}`
  const fault = credential === undefined ? null : gateway.faultOf(body)
  if (credential !== undefined && fault !== null && verdict !== 'retry') {
    const failed = providerFailure(fault, response, answered, credential)
    if (failed !== null) return failed
  }
  if (outcome.kind === 'answered' && outcome.inPlaceOfJson !== undefined)
    return {
      kind: 'retry',
      errorClass: 'response_not_json',
      error: shortText(
        `${what} responded with ${outcome.status} and ${outcome.inPlaceOfJson} in place of JSON; a step whose target sends text sets its own Accept header`,
      ),
      response,
      retryAfterMs: parseRetryAfter(outcome.retryAfter, now()),
    }
  if (verdict === 'completed') return response
  const error = shortText(fault === null ? answered : providerReason(fault, answered))
  if (credential !== undefined && outcome.status === FAILED_DEPENDENCY)
    return { kind: 'waiting', credential, error: `${error}: ${credential} is faulted` }
  const errorClass = `http_${outcome.status}`
  if (credential !== undefined && outcome.status === UNAUTHORIZED)
    return { kind: 'retry', errorClass, error, response, retryAfterMs: TOKEN_RENEWAL_MS }
  if (verdict === 'failed') return { kind: 'failed', errorClass, error, response }
  const retryAfterMs = parseRetryAfter(outcome.retryAfter, now())
  const isOfCredential = credential !== undefined && outcome.status === TOO_MANY_REQUESTS
  const key = isOfCredential ? credential : targetKey
  if (key === undefined || !isBusy(outcome.status, retryAfterMs))
    return { kind: 'retry', errorClass, error, response, retryAfterMs }
  const isRepeated = coolDowns.isHeld(key)
  const delayMs = coolDowns.start(key, retryAfterMs)
  return { kind: 'held', errorClass, error, response, delayMs, ...(isRepeated && { isRepeated }) }
}

/** What the error of a run says about closed books. The closing date is added where it is known (closing-dates.ts). */
export const CLOSED = 'the books of the company are closed for this period'

/**
 * Returns the failure that an error body of the provider describes; `null` if the status alone decides. The body
 * matters because providers use unspecific statuses for errors that only a person can fix: Intuit reports an ended
 * subscription with 400, and may report an error with 200.
 */
function providerFailure(
  fault: ProviderFault,
  response: Response,
  answered: string,
  credential: string,
): EarlyOutcome | null {
  const isSuccess = response.status < 300
  const faultClass = fault.class ?? (isSuccess ? 'provider_fault' : null)
  if (faultClass === null) return null
  const { remedy } = providerFaultClasses[faultClass]
  if (faultClass === 'books_closed')
    return {
      kind: 'blocked',
      waitingFor: WAITS_FOR_BOOKS + realmOf(credential),
      errorClass: faultClass,
      error: shortText(`${providerReason({ ...fault, detail: CLOSED }, answered)}. ${remedy}`),
      response,
    }
  const reason = providerReason(fault, answered)
  return {
    kind: 'failed',
    errorClass: faultClass,
    error: shortText(`${reason}. ${remedy}`),
    response,
    // The step is in doubt: the provider has already processed an earlier call with this requestid, and that call may
    // have taken effect.
    ...(faultClass === 'provider_duplicate_request' && { isInDoubt: true }),
  }
}

// 424, the gateway's response if the credential can no longer be refreshed (RFC 4918 §11.4).
const FAILED_DEPENDENCY = 424
// With 401 the provider rejects the access token. The gateway then refreshes the token, at most once a minute. So a
// retry after a minute either succeeds, or gets 424 if the credential can no longer be refreshed; the run then waits
// until the company is connected again.
const UNAUTHORIZED = 401
const TOKEN_RENEWAL_MS = 60_000
// 429, too many requests (RFC 6585 §4).
const TOO_MANY_REQUESTS = 429
// With Retry-After, a 503 says how long the target will be overloaded or in maintenance (RFC 9110 §15.6.4).
const SERVICE_UNAVAILABLE = 503

/** Parses a response body for a step. If the body cannot be parsed, the result has the reason in `why`. */
export function parseBody<Data>(
  { body }: Response,
  parse: (body: unknown) => Data,
): { readonly data: Data } | { readonly why: string } {
  const json = parseJson(body, DOCUMENT_LIMITS)
  if (json === undefined) return { why: jsonExcess(body, DOCUMENT_LIMITS) ?? 'not JSON' }
  try {
    return { data: parse(json) }
  } catch (error) {
    return { why: `not what the step expects: ${thrownText(error, 'body')}` }
  }
}
