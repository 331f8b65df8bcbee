/**
 * Runs a step function and derives the outcome of the step from what it does.
 *
 * O1  The first call that ends the step (a failed `execute`, `fail`, `waitFor`) decides the outcome. Code that the
 *     step runs afterwards can neither change the outcome nor send a call.
 * O2  A step that throws an error of its own is retried; one that returns without a status has failed.
 * O3  A step is in doubt from the moment a call is sent until the effect of the call is known: the target
 *     rejected the call, the response was judged, or `confirm` reported that the call had no effect.
 */
import { credentialName } from '@integration-host/shared/contracts/realm'
import type { Logger } from '@integration-host/shared/observability/logger'
import { type FinishedItem, idempotencyKey } from '../transaction/item.ts'
import type { Claim } from '../transaction/transaction-source.ts'
import type { Files } from './files.ts'
import type { HttpCall, StepCall } from './http-call.ts'
import {
  type EarlyOutcome,
  judgeCall,
  type JudgeDeps,
  mayHaveTakenEffect,
  parseBody,
  shortText,
} from './judge-call.ts'
import type { Response, StepOutcome } from './progress.ts'
import type {
  AnyStep,
  ExecuteOptions,
  InDoubtStep,
  ProcessSettings,
  Step,
  StepItem,
} from './step.ts'
import type { StepAbort } from './step-abort.ts'
import { outgoingCall, type StepRequest } from './step-request.ts'
import { type Json, normalizedJson } from './json-normalization.ts'

export interface StepDeps extends JudgeDeps {
  readonly call: HttpCall
  readonly files: Files
  readonly settings: ProcessSettings
  readonly log: () => Logger
  /** Returns the `traceparent` of the next call; each call has a span id of its own. */
  readonly traceparent: () => string
  /** Called before each call is sent, and again with the id of its response. */
  readonly onCall: (call: StepCall) => void
  readonly abort: StepAbort
}

/** Runs the step of a claimed run and returns its outcome. Never rejects. */
export async function runStep(
  handler: AnyStep,
  claim: Claim,
  stepNames: readonly string[],
  deps: StepDeps,
): Promise<StepOutcome> {
  const before = stepNames[stepNames.indexOf(claim.run.StepName) - 1]
  // Another program inserted the row of this run at a later step, so the item of the preceding step will never exist.
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
    deps.log().info('step is in doubt: calling its confirm function')
    const { outcome, returned } = await perform(confirm, { claim, before, isInDoubt }, deps)
    if (outcome !== null) return outcome
    if (returned !== 'not_done')
      return { ...statusNotSet('confirm ended without complete() and without not_done'), isInDoubt }
    isInDoubt = false
  }
  const { outcome } = await perform(handler, { claim, before, isInDoubt }, deps)
  return outcome ?? statusNotSet('the step ended without a call and without a status')
}

/** Thrown inside a step function to end it. The outcome of the step is already decided, so the error is ignored. */
class StepEnded extends Error {
  override readonly name = 'StepEnded'
}

interface StepInput {
  readonly claim: Claim
  /** The name of the previous step. */
  readonly before: string | undefined
  readonly isInDoubt: boolean
}

/** Calls a step function or its `confirm`. The outcome is `null` if the function returned without a status. */
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
  /**
   * Makes a call and returns its response. Returns `null` if `isAbsent` reports that the status of the response
   * means an absent resource.
   */
  async function send<Data extends Json>(
    request: StepRequest,
    options: ExecuteOptions<Data>,
    callKey: string | null,
    isAbsent: (status: number) => boolean,
  ) {
    if (ended !== null) throw new StepEnded()
    const { credential, parse, timeoutMs = DEFAULT_CALL_MS } = options
    // The realm of a run was checked against the key that queued it. The credential may come from the initial data,
    // which was not.
    if (credential !== undefined && run.Realm !== null && credential !== credentialName(run.Realm))
      return end({
        kind: 'failed',
        errorClass: 'realm_foreign',
        error: shortText(`the step calls with ${credential}, but the run belongs to ${run.Realm}`),
        response: null,
      })
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
    const { abort, onCall } = deps
    const traceparent = deps.traceparent()
    const sent = {
      method,
      url: storedUrl(url),
      traceId: traceparent.slice(3, 35), // W3C Trace Context §3.2.2: 00-<trace id>-<span id>-<flags>
      responseId: null,
    }
    onCall(sent)
    const outcome = await deps.call(
      {
        method,
        url,
        body,
        headers: {
          ...headers,
          ...(callKey !== null && { 'idempotency-key': callKey }),
          traceparent,
        },
      },
      { abort, timeoutMs },
    )
    if ('responseId' in outcome && outcome.responseId !== null)
      onCall({ ...sent, responseId: outcome.responseId })
    if (mayHaveTakenEffect(outcome)) hasDoubt = true
    if (outcome.kind === 'answered' && isAbsent(outcome.status)) return null
    const judged = await judgeCall(outcome, what, credential, deps)
    if ('kind' in judged) return end(judged)
    response = judged
    const parsed = parseBody(judged, parse)
    if ('why' in parsed) {
      // A retry would not help: the call succeeded, so the target would send the same response again.
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
      // For the target, a further call of the same step is another operation, so the call gets a key of its own.
      const callKey = calls === 1 ? key : `${key}/${calls}`
      const succeeded = await send(request, options, callKey, () => false)
      if (succeeded === null) throw new StepEnded() // unreachable, because no status counts as absent here
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
      deps.log().warn({ err: error }, 'step function threw an error')
      const text = error instanceof Error ? `${error.name}: ${error.message}` : 'not an error'
      // If an earlier call of the step succeeded, its result is now lost, so the step is in doubt.
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
  // `ended` and `completion` are assigned in the functions above, which TypeScript's control flow analysis does not
  // follow.
  const early = ended as EarlyOutcome | null
  if (early !== null) return { outcome: hasDoubt ? { ...early, isInDoubt: true } : early, returned }
  const completed = completion as { data: Json; endsRun: boolean } | null
  return {
    outcome: completed === null ? null : { kind: 'completed', response, ...completed },
    returned,
  }
}

const MAX_URL_LENGTH = 2_000

const storedUrl = ({ origin, pathname }: URL): string =>
  (origin + pathname).slice(0, MAX_URL_LENGTH)

const DEFAULT_CALL_MS = 60_000
const MAX_WAIT_MS = 31_536_000_000

const statusNotSet = (error: string) =>
  ({ kind: 'failed', errorClass: 'status_not_set', error, response: null }) as const

const finishedItem = ({ items }: Claim, name: string): FinishedItem | undefined =>
  items.find(({ StepName }) => StepName === name)
