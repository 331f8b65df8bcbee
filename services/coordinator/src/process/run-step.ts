/**
 * Runs a step function and derives the outcome of the step from what it does.
 *
 * O1  The first call that ends the step (a failed `execute`, `fail`, `waitFor`) decides the outcome. Code of the
 *     step after it changes nothing and sends nothing.
 * O2  A step that throws an error of its own is retried; one that returns without a status has failed.
 * O3  A step is in doubt from the moment a call is sent until its effect is known: the target rejected the call,
 *     the response was judged, or `confirm` reported that it had not happened.
 */
import type { Logger } from '@integration-host/shared/observability/logger'
import { parseRetryAfter } from '@integration-host/shared/http/retry-after'
import { providerFaultClasses } from '@integration-host/shared/provider-profile/provider-fault'
import { type FinishedItem, idempotencyKey } from '../transaction/item.ts'
import type { Claim } from '../transaction/transaction-source.ts'
import type { CoolDowns } from './cool-downs.ts'
import type { Files } from './files.ts'
import { type CallOutcome, type HttpCall, MAX_RESPONSE_BYTES } from './http-call.ts'
import { NO_RESPONSE, type Response, type StepOutcome } from './progress.ts'
import { leavesDoubt, verdictOf } from './retry-policy.ts'
import type {
  AnyStep,
  ExecuteOptions,
  InDoubtStep,
  ProcessSettings,
  Step,
  StepItem,
} from './step.ts'
import type { StepAbort } from './step-abort.ts'
import { type Gateway, outgoingCall, type StepRequest } from './step-request.ts'
import { type Json, normalizedJson, normalizedText } from './json-normalization.ts'

export interface StepDeps {
  readonly call: HttpCall
  readonly gateway: Gateway
  readonly coolDowns: CoolDowns
  readonly files: Files
  readonly settings: ProcessSettings
  readonly log: () => Logger
  /** Returns another one for each call. */
  readonly traceparent: () => string
  readonly abort: StepAbort
  /** Whether the internet is reachable: otherwise a failed call is not charged. */
  readonly isOnline: () => Promise<boolean>
  /** Epoch ms, for a `Retry-After` that is a date. */
  readonly now: () => number
}

/** Runs the step of a claimed run and returns its outcome. Never rejects. */
export async function runStep(
  handler: AnyStep,
  claim: Claim,
  stepNames: readonly string[],
  deps: StepDeps,
): Promise<StepOutcome> {
  const before = stepNames[stepNames.indexOf(claim.run.StepName) - 1]
  // Another program inserted the row in the middle of its process: the item of the step before will never exist.
  if (before !== undefined && finishedItem(claim, before) === undefined)
    return {
      kind: 'failed',
      errorClass: 'step_before_missing',
      error: `the step ${before} before this one was never finished`,
      response: null,
    }
  const { confirm } = handler
  let isInDoubt = claim.run.InDoubt
  if (isInDoubt && confirm !== undefined) {
    deps.log().info('step is in doubt, calling its confirm')
    const { outcome, returned } = await perform(confirm, { claim, before, isInDoubt }, deps)
    if (outcome !== null) return outcome
    if (returned !== 'not_done')
      return { ...statusNotSet('confirm ended without complete() and without not_done'), isInDoubt }
    isInDoubt = false
  }
  const { outcome } = await perform(handler, { claim, before, isInDoubt }, deps)
  return outcome ?? statusNotSet('the step ended without a call and without a status')
}

/** Ends a step from inside; the outcome is already decided (O1). */
class StepEnded extends Error {
  override readonly name = 'StepEnded'
}

/** An outcome that ends a step before its function returns. */
type EarlyOutcome = Exclude<StepOutcome, { readonly kind: 'completed' }>

interface StepInput {
  readonly claim: Claim
  /** The name of the previous step. */
  readonly before: string | undefined
  readonly isInDoubt: boolean
}

/** Calls a step function or its `confirm`; the outcome is `null` if it returned without a status. */
async function perform(
  handler: (step: never) => unknown,
  { claim, before, isInDoubt }: StepInput,
  deps: StepDeps,
): Promise<{ outcome: StepOutcome | null; returned: unknown }> {
  const { run } = claim
  const key = idempotencyKey(run, run.StepName)
  let ended: EarlyOutcome | null = null
  let response: Response | null = null
  let completion: { data: Json; endsRun: boolean } | null = null
  let calls = 0
  let hasDoubt = isInDoubt

  const end = (outcome: EarlyOutcome): never => {
    ended ??= outcome
    throw new StepEnded()
  }
  const itemOf = (name: string): StepItem => {
    const item = finishedItem(claim, name)
    if (item === undefined) throw new TypeError(`there is no finished item ${name} in this run`)
    return {
      name,
      TransactionID: run.TransactionID,
      ReplayID: run.ReplayID,
      ResponseBody: item.ResponseBody,
      responseStatus: item.ResponseStatus,
      data: item.Data,
    }
  }
  /** Makes a call; `null` for a response whose status means, by `isAbsent`, that there is nothing to find. */
  async function send<Data extends Json>(
    request: StepRequest,
    options: ExecuteOptions<Data>,
    callKey: string | null,
    isAbsent: (status: number) => boolean,
  ) {
    if (ended !== null) throw new StepEnded()
    const { credential, parse, timeoutMs = DEFAULT_CALL_MS } = options
    const { method, url, body, headers } = outgoingCall(request, credential, deps.gateway)
    const what = `${method} ${url.origin}${url.pathname}`
    const coolDownMs = credential === undefined ? null : deps.coolDowns.delayOf(credential)
    if (coolDownMs !== null)
      return end({
        kind: 'held',
        errorClass: 'credential_held',
        error: shortText(`${what} was not sent: ${credential} is in a cool-down after a 429`),
        response: null,
        delayMs: coolDownMs,
      })
    const { abort, traceparent } = deps
    const outcome = await deps.call(
      {
        method,
        url,
        body,
        headers: {
          ...headers,
          ...(callKey !== null && { 'idempotency-key': callKey }),
          traceparent: traceparent(),
        },
      },
      { abort, timeoutMs },
    )
    if (isUnaccounted(outcome)) hasDoubt = true
    if (outcome.kind === 'answered' && isAbsent(outcome.status)) return null
    const judged = await judge(outcome, what, credential, deps, end)
    response = judged
    const parsed = parseBody(judged, parse)
    if ('why' in parsed) {
      // The call succeeded: a retry would not change the response.
      hasDoubt = true
      const error = shortText(
        `${what} responded with ${judged.status}, and the body is ${parsed.why}`,
      )
      return end({ kind: 'failed', errorClass: 'response_invalid', error, response: judged })
    }
    return { status: judged.status, body: judged.body, data: parsed.data }
  }

  const step: Step<Json, AnyStep | null> & Pick<InDoubtStep<AnyStep>, 'find'> = {
    process: run.Process,
    name: run.StepName,
    transactionId: run.TransactionID,
    replayId: run.ReplayID,
    isReplay: run.ReplayID > 0,
    realm: run.Realm,
    attempt: run.Attempt,
    idempotencyKey: key,
    initialData: run.InitialData,
    previous: before === undefined ? null : itemOf(before),
    item: itemOf,
    settings: deps.settings,
    files: deps.files,
    get signal() {
      return deps.abort.signal
    },
    get log() {
      return deps.log()
    },
    async execute<Data extends Json = Json>(
      request: StepRequest,
      options: ExecuteOptions<Data> = {},
    ) {
      calls += 1
      // To its target, a further call of the same step is another operation.
      const callKey = calls === 1 ? key : `${key}/${calls}`
      const succeeded = await send(request, options, callKey, () => false)
      if (succeeded === null) throw new StepEnded() // not reached: no status counts as absent here
      completion = { data: normalizedJson(succeeded.data), endsRun: completion?.endsRun ?? false }
      return succeeded
    },
    find: (request, options = {}) =>
      send(request, options, null, (status) => status === 404 || status === 410),
    complete<Data extends Json = null>(data?: Data) {
      completion = { data: normalizedJson(data ?? null), endsRun: completion?.endsRun ?? false }
      return { data: (data ?? null) as Data }
    },
    fail: (reason) =>
      end({ kind: 'failed', errorClass: 'step_failed', error: shortText(reason), response }),
    waitFor(delayMs) {
      if (!(delayMs >= 0)) throw new RangeError('waitFor expects milliseconds from now')
      return end({ kind: 'later', delayMs: Math.min(delayMs, MAX_WAIT_MS) })
    },
    setStatus() {
      completion = { data: completion?.data ?? null, endsRun: true }
    },
  }

  let returned: unknown
  try {
    returned = await (handler as (given: unknown) => unknown)(step)
  } catch (error) {
    if (ended === null && !(error instanceof StepEnded)) {
      deps.log().warn({ err: error }, 'step threw')
      const text = error instanceof Error ? `${error.name}: ${error.message}` : 'not an error'
      // The result of a call that succeeded before is lost now (O3).
      hasDoubt ||= response !== null
      ended = {
        kind: 'retry',
        errorClass: 'step_threw',
        error: shortText(text),
        response,
        retryAfterMs: null,
      }
    }
  }
  // Both are assigned in the functions above, which TypeScript's control flow analysis does not follow.
  const early = ended as EarlyOutcome | null
  if (early !== null) return { outcome: hasDoubt ? { ...early, isInDoubt: true } : early, returned }
  const completed = completion as { data: Json; endsRun: boolean } | null
  return {
    outcome: completed === null ? null : { kind: 'completed', response, ...completed },
    returned,
  }
}

const DEFAULT_CALL_MS = 60_000
const MAX_ERROR_LENGTH = 1_000
const MAX_WAIT_MS = 31_536_000_000

const shortText = (text: string): string => normalizedText(text.slice(0, MAX_ERROR_LENGTH))

const statusNotSet = (error: string) =>
  ({ kind: 'failed', errorClass: 'status_not_set', error, response: null }) as const

const finishedItem = ({ items }: Claim, name: string): FinishedItem | undefined =>
  items.find(({ StepName }) => StepName === name)

/** Whether a call may have done its work although its response does not say so (O3). */
const isUnaccounted = (outcome: CallOutcome): boolean =>
  outcome.kind === 'failed' || outcome.kind === 'aborted'
    ? outcome.isSent
    : verdictOf(outcome.status) === 'completed'
      ? outcome.kind === 'too_large'
      : leavesDoubt(outcome.status)

type End = (outcome: EarlyOutcome) => never

/** The response of a successful call; for any other outcome it ends the step. */
async function judge(
  outcome: CallOutcome,
  what: string,
  credential: string | undefined,
  deps: StepDeps,
  end: End,
): Promise<Response> {
  if (outcome.kind === 'aborted' || outcome.kind === 'failed') {
    const reason = outcome.kind === 'failed' ? outcome.reason : 'aborted'
    const error = shortText(
      outcome.isSent ? `${what} got no response: ${reason}` : `${what} failed: ${reason}`,
    )
    // The attempt is given back also if the call failed because the internet is unreachable.
    if (outcome.kind === 'aborted' || !(await deps.isOnline()))
      return end({ kind: 'released', ...(outcome.isSent && { noResponse: error }) })
    const errorClass = outcome.isSent ? NO_RESPONSE : 'network'
    return end({ kind: 'retry', errorClass, error, response: null, retryAfterMs: null })
  }
  const verdict = verdictOf(outcome.status)
  if (outcome.kind === 'too_large' && verdict === 'completed')
    return end({
      kind: 'failed',
      errorClass: 'response_too_large',
      error: shortText(
        `${what} responded with ${outcome.status} and more than ${MAX_RESPONSE_BYTES} bytes`,
      ),
      response: null,
    })
  const body = outcome.kind === 'too_large' ? '' : normalizedText(outcome.body)
  const response = { status: outcome.status, body }
  if (credential !== undefined && verdict !== 'retry') {
    const failed = providerFailure(response, what, deps.gateway)
    if (failed !== null) return end(failed)
  }
  if (verdict === 'completed') return response
  const error = shortText(`${what} responded with ${outcome.status}`)
  if (credential !== undefined && outcome.status === FAILED_DEPENDENCY)
    return end({ kind: 'waiting', credential, error: `${error}: ${credential} is faulted` })
  const errorClass = `http_${outcome.status}`
  if (verdict === 'failed') return end({ kind: 'failed', errorClass, error, response })
  const retryAfterMs = parseRetryAfter(outcome.retryAfter, deps.now())
  if (credential !== undefined && outcome.status === TOO_MANY_REQUESTS) {
    const delayMs = deps.coolDowns.start(credential, retryAfterMs)
    return end({ kind: 'held', errorClass, error, response, delayMs })
  }
  return end({ kind: 'retry', errorClass, error, response, retryAfterMs })
}

/**
 * The failure that an error body of the provider stands for; `null` if the status says enough. Providers send
 * errors that need a person under statuses that do not say so: Intuit reports an ended subscription with 400,
 * and may report an error with 200.
 */
function providerFailure(response: Response, what: string, gateway: Gateway): EarlyOutcome | null {
  const fault = gateway.faultOf(response.body)
  const isSuccess = response.status < 300
  const faultClass = fault?.class ?? (isSuccess ? 'provider_fault' : null)
  if (fault === null || faultClass === null) return null
  const code = fault.code === '' ? 'an error' : `error ${fault.code}`
  const { remedy } = providerFaultClasses[faultClass]
  return {
    kind: 'failed',
    errorClass: faultClass,
    error: shortText(`${what} responded with ${response.status} and ${code}. ${remedy}`),
    response,
    // The earlier attempt that the provider remembers may have done the step's work.
    ...(faultClass === 'provider_duplicate_request' && { isInDoubt: true }),
  }
}

// RFC 4918 §11.4; the gateway responds with it if the credential is faulted.
const FAILED_DEPENDENCY = 424
// RFC 6585 §4
const TOO_MANY_REQUESTS = 429

function parseBody<Data extends Json>(
  { body }: Response,
  parse: ((body: unknown) => Data) | undefined,
): { readonly data: Data } | { readonly why: string } {
  if (parse === undefined) return { data: null as Data }
  try {
    return { data: parse(JSON.parse(body)) }
  } catch (error) {
    return { why: error instanceof SyntaxError ? 'not JSON' : 'not what the step expects' }
  }
}
