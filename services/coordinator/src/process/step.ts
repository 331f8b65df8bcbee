/**
 * What a step sees of its run, and how the outcome comes from what it does.
 *
 * O1  The first call that ends the step (a failed `execute`, `fail`) decides: code after it changes nothing.
 * O2  A step that throws by itself is tried again; one that ends without saying how has failed.
 */
import { realmOf } from '@integration-host/shared/contracts/realm'
import type { Logger } from '@integration-host/shared/logger'
import { idempotencyKey, type Item } from '../transaction/item.ts'
import type { Claim } from '../transaction/transaction-source.ts'
import { type CallOutcome, type HttpCall, MAX_RESPONSE_BYTES } from './http-call.ts'
import type { Response, StepOutcome } from './progress.ts'
import { parseRetryAfter, verdictOf } from './retry-policy.ts'
import { type Json, storableJson, storableText } from './storable.ts'

/** Any step function, whatever it expects of the ones before it. */
export type AnyStep = (step: never) => unknown

/** The data a step leaves for the next: what its `execute` parsed, or what it gave to `complete`. */
export type DataOf<Of> = Of extends (step: never) => infer Result
  ? Awaited<Result> extends { readonly data: infer Data }
    ? Data
    : Json
  : Json

/** A finished step of this run. */
export interface StepItem<Data = Json> {
  readonly name: string
  readonly TransactionID: string
  readonly ReplayID: number
  readonly ResponseBody: string | null
  readonly responseStatus: number | null
  readonly data: Data
}

export interface StepRequest {
  /** Absolute; a path when `credential` is given, because the gateway's address comes before it. */
  readonly url: string
  /** GET unless given. */
  readonly method?: string
  readonly query?: Readonly<Record<string, string | number | boolean>>
  readonly headers?: Readonly<Record<string, string>>
  /** Text is sent as it is, anything else as JSON. */
  readonly body?: Json
}

export interface ExecuteOptions<Data extends Json> {
  /** Makes the step's data of the parsed JSON body; throws when the answer is not what was expected. */
  readonly parse?: (body: unknown) => Data
  /** `ACC-<realm>`: the call goes through the gateway, which adds that realm's current access token. */
  readonly credential?: string
  /** For this call, connecting included; 60 seconds unless given. */
  readonly timeoutMs?: number
}

/** Settings of the installation that steps may use. */
export interface ProcessSettings {
  readonly demoApiUrl: string
  /** The folder for what steps write. */
  readonly dataDir: string
}

/**
 * A step of a run. `Initial` is the type of the initial data, `Previous` the step function before this one,
 * `Items` the earlier steps that `item` is asked for: `Step<string, typeof report, { order: typeof order }>`.
 */
export interface Step<
  Initial = Json,
  Previous extends AnyStep | null = null,
  Items extends Readonly<Record<string, AnyStep>> = Readonly<Record<string, AnyStep>>,
> {
  readonly process: string
  readonly name: string
  readonly transactionId: string
  readonly replayId: number
  readonly isReplay: boolean
  readonly realm: string | null
  /** From 1. */
  readonly attempt: number
  readonly initialData: Initial
  /** The step before this one; null in the first. */
  readonly previous: Previous extends AnyStep ? StepItem<DataOf<Previous>> : null
  /** A finished step of this run by name. */
  item<Name extends keyof Items & string>(name: Name): StepItem<DataOf<Items[Name]>>
  readonly settings: ProcessSettings
  /** Aborts when the run is cancelled, its lease lost, its time used up, or the process leaves. */
  readonly signal: AbortSignal
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>
  /**
   * Makes an HTTP call with this step's idempotency key. 2xx completes the step; anything else ends it here:
   * tried again later, failed, or waiting for the credential.
   */
  execute<Data extends Json = Json>(
    request: StepRequest,
    options?: ExecuteOptions<Data>,
  ): Promise<{ readonly status: number; readonly body: string; readonly data: Data }>
  /** Completes the step without a call. */
  complete<Data extends Json = null>(data?: Data): { readonly data: Data }
  /** Ends the step and the run as failed. */
  fail(reason: string): never
  /** Completes the step and the run, whatever steps would follow. */
  setStatus(status: 'Completed'): void
}

export interface StepDeps {
  readonly call: HttpCall
  readonly gateway: { readonly url: string; readonly key: string }
  readonly settings: ProcessSettings
  readonly log: Logger
  readonly traceparent: string
  readonly signal: AbortSignal
  readonly untilSent: AbortSignal
  /** Whether a failed call counts: false when the internet is away. */
  readonly isOnline: () => Promise<boolean>
  /** Epoch ms, for a `Retry-After` that is a date. */
  readonly now: () => number
}

/** Ends a step from inside; the outcome is already decided (O1). */
class StepEnded extends Error {
  override readonly name = 'StepEnded'
}

/** Runs one step of a claimed run and tells what it came to. Never rejects. */
export async function runStep(
  handler: AnyStep,
  claim: Claim,
  stepNames: readonly string[],
  deps: StepDeps,
): Promise<StepOutcome> {
  const { header, items } = claim
  const key = idempotencyKey(header, header.StepName)
  let ended: StepOutcome | null = null
  let response: Response | null = null
  let completion: { data: Json; endsRun: boolean } | null = null
  let calls = 0

  const end = (outcome: StepOutcome): never => {
    ended ??= outcome
    throw new StepEnded()
  }
  const itemOf = (name: string): StepItem => {
    const item = items.find(({ StepName }) => StepName === name)
    if (item === undefined || !isFinished(item))
      throw new TypeError(`there is no finished item ${name} in this run`)
    return {
      name,
      TransactionID: header.TransactionID,
      ReplayID: header.ReplayID,
      ResponseBody: item.ResponseBody,
      responseStatus: item.ResponseStatus,
      data: item.Data,
    }
  }
  const before = stepNames[stepNames.indexOf(header.StepName) - 1]
  // A row that somebody placed in the middle of a process: no attempt can bring what was never done.
  if (before !== undefined && !items.some((item) => item.StepName === before && isFinished(item)))
    return {
      kind: 'failed',
      errorClass: 'step_before_missing',
      error: `the step ${before} before this one was never finished`,
      response: null,
    }

  const step: Step<Json, AnyStep | null> = {
    process: header.Process,
    name: header.StepName,
    transactionId: header.TransactionID,
    replayId: header.ReplayID,
    isReplay: header.ReplayID > 0,
    realm: header.Realm,
    attempt: header.Attempt,
    initialData: header.InitialData,
    previous: before === undefined ? null : itemOf(before),
    item: itemOf,
    settings: deps.settings,
    signal: deps.signal,
    log: deps.log,
    async execute<Data extends Json = Json>(
      request: StepRequest,
      options: ExecuteOptions<Data> = {},
    ) {
      calls += 1
      const outgoing = outgoingCall(request, options.credential, deps)
      const outcome = await deps.call(
        {
          ...outgoing,
          headers: {
            ...outgoing.headers,
            // A further call of the same step is another operation for its target.
            'idempotency-key': calls === 1 ? key : `${key}/${calls}`,
            traceparent: deps.traceparent,
          },
        },
        {
          signal: deps.signal,
          untilSent: deps.untilSent,
          timeoutMs: options.timeoutMs ?? DEFAULT_CALL_MS,
        },
      )
      const what = `${outgoing.method} ${outgoing.url.origin}${outgoing.url.pathname}`
      const answer = await judge(outcome, what, options.credential, deps, end)
      response = answer
      const data = parseBody(answer, options.parse, what, end)
      completion = { data: storableJson(data), endsRun: completion?.endsRun ?? false }
      return { status: answer.status, body: answer.body, data }
    },
    complete<Data extends Json = null>(data?: Data) {
      completion = { data: storableJson(data ?? null), endsRun: completion?.endsRun ?? false }
      return { data: (data ?? null) as Data }
    },
    fail: (reason) =>
      end({ kind: 'failed', errorClass: 'step_failed', error: shortText(reason), response }),
    setStatus() {
      completion = { data: completion?.data ?? null, endsRun: true }
    },
  }

  try {
    await (handler as (given: unknown) => unknown)(step)
  } catch (error) {
    if (ended === null && !(error instanceof StepEnded)) {
      deps.log.warn({ err: error }, 'step threw')
      const text = error instanceof Error ? `${error.name}: ${error.message}` : 'not an error'
      return {
        kind: 'retry',
        errorClass: 'step_threw',
        error: shortText(text),
        response,
        retryAfterMs: null,
      }
    }
  }
  if (ended !== null) return ended
  // Assigned in the functions above, which the compiler does not follow.
  const completed = completion as { data: Json; endsRun: boolean } | null
  if (completed !== null) return { kind: 'completed', response, ...completed }
  return {
    kind: 'failed',
    errorClass: 'status_not_set',
    error: 'the step ended without a call and without a status',
    response: null,
  }
}

const DEFAULT_CALL_MS = 60_000
const MAX_ERROR_LENGTH = 1_000

const shortText = (text: string): string => storableText(text.slice(0, MAX_ERROR_LENGTH))

const isFinished = ({ Status }: Item): boolean => Status === 'Completed' || Status === 'Copied'

type End = (outcome: StepOutcome) => never

/** The response of a call that succeeded; ends the step for any other. */
async function judge(
  outcome: CallOutcome,
  what: string,
  credential: string | undefined,
  deps: StepDeps,
  end: End,
): Promise<Response> {
  switch (outcome.kind) {
    case 'aborted':
      return end({ kind: 'released' })
    case 'failed': {
      if (!(await deps.isOnline())) return end({ kind: 'released' })
      const error = shortText(`${what} failed: ${outcome.reason}`)
      const errorClass = 'network'
      return end({ kind: 'retry', errorClass, error, response: null, retryAfterMs: null })
    }
    case 'too_large':
      return end({
        kind: 'failed',
        errorClass: 'response_too_large',
        error: shortText(
          `${what} answered ${outcome.status} with more than ${MAX_RESPONSE_BYTES} bytes`,
        ),
        response: null,
      })
    case 'answered':
  }
  const response = { status: outcome.status, body: storableText(outcome.body) }
  const verdict = verdictOf(outcome.status)
  if (verdict === 'completed') return response
  const error = shortText(`${what} answered ${outcome.status}`)
  if (credential !== undefined && outcome.status === FAILED_DEPENDENCY)
    return end({ kind: 'waiting', credential, error: `${error}: ${credential} is faulted` })
  const errorClass = `http_${outcome.status}`
  if (verdict === 'failed') return end({ kind: 'failed', errorClass, error, response })
  const retryAfterMs = parseRetryAfter(outcome.retryAfter, deps.now())
  return end({ kind: 'retry', errorClass, error, response, retryAfterMs })
}

// RFC 4918 §11.4; the gateway's answer for a faulted credential.
const FAILED_DEPENDENCY = 424

function parseBody<Data extends Json>(
  response: Response,
  parse: ((body: unknown) => Data) | undefined,
  what: string,
  end: End,
): Data {
  if (parse === undefined) return null as Data
  try {
    return parse(JSON.parse(response.body))
  } catch (error) {
    const why = error instanceof SyntaxError ? 'not JSON' : 'not what the step expects'
    // The call succeeded: making it again would not change the answer.
    return end({
      kind: 'failed',
      errorClass: 'response_invalid',
      error: shortText(`${what} answered ${response.status}, and the body is ${why}`),
      response,
    })
  }
}

/** The call a request stands for. @throws {TypeError} for a request that cannot be sent, which is a bug of the step. */
function outgoingCall(
  request: StepRequest,
  credential: string | undefined,
  { gateway }: Pick<StepDeps, 'gateway'>,
) {
  const isGateway = credential !== undefined
  const url = isGateway ? gatewayUrl(request.url, credential, gateway.url) : new URL(request.url)
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw new TypeError('a step calls http(s) addresses')
  for (const [name, value] of Object.entries(request.query ?? {}))
    url.searchParams.append(name, String(value))
  const body =
    request.body === undefined
      ? null
      : typeof request.body === 'string'
        ? request.body
        : JSON.stringify(request.body)
  return {
    method: (request.method ?? 'GET').toUpperCase(),
    url,
    headers: {
      accept: 'application/json',
      ...(body !== null &&
        typeof request.body !== 'string' && { 'content-type': 'application/json' }),
      ...Object.fromEntries(
        Object.entries(request.headers ?? {}).map(([name, value]) => [name.toLowerCase(), value]),
      ),
      ...(isGateway && { authorization: `Bearer ${gateway.key}` }),
    },
    body,
  }
}

function gatewayUrl(path: string, credential: string, gateway: string): URL {
  const realm = realmOf(credential)
  const url = new URL(gateway + path)
  // Our own key travels with this call, so it must reach the gateway, and only for the realm that was named.
  if (!path.startsWith('/') || url.origin !== new URL(gateway).origin)
    throw new TypeError('a call with a credential takes a path, not an address')
  if (!credential.startsWith('ACC-') || !url.pathname.startsWith(`/v3/company/${realm}/`))
    throw new TypeError(`the path must be below /v3/company/<realm>/ of ${credential}`)
  return url
}
