/** Sends the calls of steps: checks whether a call may be sent, and waits until the limits of its target permit it. */
import { credentialName } from '@integration-host/shared/contracts/realm'
import { namesInstead } from '@integration-host/shared/similar-name'
import { headerValue } from '@integration-host/shared/http/header-list'
import type { ClaimedRun } from '../run/run.ts'
import { type WrittenObject, writtenObjects } from '../entry/written-objects.ts'
import type { ProcessDefinition } from './definition.ts'
import type { CallOutcome, HttpCall } from './http-call.ts'
import type { StepCall } from '../run/progress.ts'
import { type CallOwner, coolDownOf, type EarlyOutcome, type JudgeDeps } from './judge-call.ts'
import { acceptsOnlyJson, inPlaceOfJson } from './response-content.ts'
import { verdictOf } from '../run/retry-policy.ts'
import { redactedOutcome, secretIn, shortRedacted } from './redacted-step.ts'
import type { StepAbort } from './step-abort.ts'
import type { CallOptions } from './step.ts'
import { outgoingCall, type StepRequest, type TargetRequest } from './step-request.ts'
import type { TargetLimiter } from './target-limiter.ts'
import type { TargetKey, TargetLimits } from '../run/target-calls.ts'
import type { BoundTarget } from './targets.ts'

export interface SendDeps extends JudgeDeps {
  readonly call: HttpCall
  readonly limiter: TargetLimiter
  /** Returns the `traceparent` of the next call. Each call has its own span id. */
  readonly traceparent: () => string
  /**
   * Called directly before a call is sent. Called a second time, with the id of the response, if the response has an
   * id.
   */
  readonly onCall: (call: StepCall) => void
  /** Called with what a successful call has written to the books of a company. */
  readonly onWritten: (written: readonly WrittenObject[]) => void
  readonly abort: StepAbort
  /** The time at which the step is aborted because of its time limit (epoch ms). */
  readonly endsAt: number
}

export interface Calling {
  readonly process: Pick<ProcessDefinition, 'bound'>
  readonly run: ClaimedRun
  readonly request: StepRequest | TargetRequest
  readonly options: CallOptions
  /** The idempotency key of the call; `null` if the call is sent without a key. */
  readonly callKey: string | null
  /** The maximum size of the response body, if it differs from the default for calls of steps. */
  readonly maxBytes?: number
  /** Whether the step has ended, so that it may send no further call. */
  readonly isEnded: () => boolean
}

export interface SentCall {
  readonly outcome: CallOutcome
  readonly method: string
  /** The name of the call in error texts: its method and its URL without the query. */
  readonly what: string
  readonly owner: CallOwner
}

/**
 * Sends a call and returns its outcome. If the call must not be sent, returns the outcome with which the step ends.
 *
 * @throws {TypeError} if the request cannot be sent, which is a bug of the step.
 */
export function sendCall(
  calling: Calling,
  deps: SendDeps,
): Promise<SentCall | NotSent> | SentCall | NotSent {
  const prepared = prepareCall(calling, deps.gateway)
  if ('end' in prepared) return prepared
  const coolDown = coolDownOfCall(prepared, deps)
  if (coolDown !== null) return coolDown
  const limits = prepared.target?.limits ?? null
  return limits === null
    ? sendPrepared(prepared, deps)
    : sendWithinLimits(prepared, limits, calling.isEnded, deps)
}

interface NotSent {
  readonly end: EarlyOutcome
}

/** A call whose request has passed the checks. */
interface PreparedCall extends ReturnType<typeof outgoingCall> {
  readonly process: Pick<ProcessDefinition, 'bound'>
  readonly processName: string
  readonly targetName: string | undefined
  readonly target: BoundTarget | undefined
  readonly callKey: string | null
  readonly timeoutMs: number
  readonly maxBytes: number | undefined
  readonly what: string
  readonly owner: CallOwner
}

/** Checks a request, and builds the call. If the call is not allowed, returns the outcome with which the step ends. */
function prepareCall(
  { process, run, request, options, callKey, maxBytes }: Calling,
  gateway: SendDeps['gateway'],
): PreparedCall | NotSent {
  const { credential } = options
  // In a run without a realm, `ACC-${step.realm}` is `ACC-null`. The coordinator reports the missing realm itself,
  // because the gateway cannot know that the run has no realm.
  if (credential !== undefined && run.Realm === null && credential === credentialName('null'))
    return failed(
      process,
      'realm_missing',
      'the step calls with the credential of the realm, but the run has no Realm: queue a transaction with "Realm" (command line: --realm)',
    )
  // A run with a realm may call only for this realm, because the service key that queued the run was allowed to use
  // this realm. The credential of a call may come from the initial data, for which no permission was checked.
  if (credential !== undefined && run.Realm !== null && credential !== credentialName(run.Realm))
    return failed(
      process,
      'realm_foreign',
      `the step calls with ${credential}, but the run belongs to ${run.Realm}`,
    )
  const targetName = request.target
  const target = targetName === undefined ? undefined : targetOf(process, targetName)
  const call = outgoingCall(request, { credential, target }, gateway)
  const { method, url, body, headers } = call
  const redaction = process.bound?.redaction ?? null
  const exposed = redaction === null ? null : secretIn(redaction, url, request.headers, body)
  if (exposed !== null)
    return failed(
      process,
      'secret_in_request',
      // The error text does not contain the path, because the path may contain the secret in an encoding.
      `${method} ${url.origin} was not sent: it contains ${exposed} outside the auth of a target`,
    )
  const limited = targetName === undefined ? undefined : limitedTargetOf(run, targetName, target)
  const targetKey = limited && `target:${limited.Process}/${limited.Target}`
  return {
    method,
    url,
    body,
    headers,
    process,
    processName: run.Process,
    targetName,
    target,
    callKey,
    timeoutMs: options.timeoutMs ?? target?.timeoutMs ?? DEFAULT_CALL_MS,
    maxBytes,
    what: `${method} ${url.origin}${url.pathname}`,
    owner: { credential, targetKey },
  }
}

const failed = (
  process: Pick<ProcessDefinition, 'bound'>,
  errorClass: string,
  error: string,
): NotSent => ({
  end: { kind: 'failed', errorClass, error: shortRedacted(process, error), response: null },
})

/** Returns the outcome of a step whose call must wait. */
const held = (
  { process, target, what }: PreparedCall,
  reason: string,
  delayMs: number,
): NotSent => ({
  end: {
    kind: 'held',
    errorClass: target === undefined ? 'credential_held' : 'target_held',
    error: shortRedacted(process, `${what} was not sent: ${reason}`),
    response: null,
    delayMs,
  },
})

/** Returns the outcome of a step whose call must wait for a cool-down; `null` if there is no cool-down. */
function coolDownOfCall(prepared: PreparedCall, { coolDowns }: SendDeps): NotSent | null {
  const key = keyOf(prepared.owner)
  const delayMs = key === undefined ? null : coolDowns.delayOf(key)
  if (delayMs === null) return null
  const cause =
    prepared.target === undefined
      ? `${prepared.owner.credential} is in a cool-down after a 429`
      : `${prepared.targetName} is in a cool-down after a 429 or 503`
  return held(prepared, cause, delayMs)
}

/**
 * Checks again for a cool-down, because one may have begun while the call waited for the limits of its target. Without
 * a cool-down `coolDownOfCall` is not called, because it would count the call against the call rate a second time.
 */
function coolDownSince(prepared: PreparedCall, deps: SendDeps): NotSent | null {
  const key = keyOf(prepared.owner)
  return key !== undefined && deps.coolDowns.isCoolingDown(key)
    ? coolDownOfCall(prepared, deps)
    : null
}

/** Returns the key of the cool-downs that apply to the call; `undefined` if none can apply. */
const keyOf = ({ credential, targetKey }: CallOwner): string | undefined => credential ?? targetKey

async function sendPrepared(prepared: PreparedCall, deps: SendDeps): Promise<SentCall> {
  const { process, method, url, body, headers, callKey, timeoutMs, maxBytes, what, owner } =
    prepared
  const traceparent = deps.traceparent()
  const sent = {
    method,
    url: storedUrl(url),
    traceId: traceparent.slice(3, 35), // W3C Trace Context §3.2.2: 00-<trace id>-<span id>-<flags>
    responseId: null,
  }
  deps.onCall(sent)
  // The headers may be changed, because `outgoingCall` has created this object for this call only.
  if (callKey !== null) headers['idempotency-key'] = callKey
  if (owner.credential !== undefined)
    headers['permit-wait'] ??= permitWaitSeconds(owner.credential, deps)
  headers['traceparent'] = traceparent
  const given = await deps.call(
    { method, url, body, headers },
    { abort: deps.abort, timeoutMs, maxBytes },
  )
  const redaction = process.bound?.redaction ?? null
  const judged = withJsonCheck(given, headers['accept'])
  const outcome = redaction === null ? judged : redactedOutcome(redaction, judged)
  const key = keyOf(owner)
  if (key !== undefined && 'status' in outcome && coolDownOf(outcome, deps.now()) === null)
    deps.coolDowns.accepted(key)
  // The secrets of the process are not redacted here, because the values are stored only as hashes.
  if (owner.credential !== undefined && !SAFE_METHODS.has(method) && isSuccess(given)) {
    const written = writtenObjects({ url, body }, given.body)
    if (written.length > 0) deps.onWritten(written)
  }
  if ('responseId' in outcome && outcome.responseId !== null)
    deps.onCall({ ...sent, responseId: outcome.responseId })
  return { outcome, method, what, owner }
}

/**
 * The safe methods (RFC 9110 §9.2.1). A safe call changes nothing, so a step is not in doubt if such a call gets no
 * response.
 */
export const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])

const isSuccess = (outcome: CallOutcome): outcome is CallOutcome & { readonly kind: 'answered' } =>
  outcome.kind === 'answered' && verdictOf(outcome.status) === 'completed'

/** Marks a successful response that has another content than the JSON for which the call has asked. */
function withJsonCheck(outcome: CallOutcome, accept: string | undefined): CallOutcome {
  if (outcome.kind !== 'answered' || verdictOf(outcome.status) !== 'completed') return outcome
  if (!acceptsOnlyJson(accept)) return outcome
  const found = inPlaceOfJson(outcome.body, headerValue(outcome.headers, 'content-type'))
  return found === null ? outcome : { ...outcome, inPlaceOfJson: found }
}

/**
 * Returns for how many seconds the gateway may let a call wait for a permit of its company. The time is short, because
 * the step of a waiting call counts against `PREFETCH`: the steps of a busy company could leave no capacity for the
 * steps of other companies. The time is 0 while other steps of the company are delayed because of a cool-down.
 */
const permitWaitSeconds = (credential: string, { coolDowns }: SendDeps): string =>
  coolDowns.isHeld(credential) ? '0' : '2'

/** Waits until the limits of the target permit the call, and then sends it. */
async function sendWithinLimits(
  prepared: PreparedCall,
  limits: TargetLimits,
  isEnded: () => boolean,
  deps: SendDeps,
): Promise<SentCall | NotSent> {
  const { processName, targetName = '', timeoutMs, method, what, owner } = prepared
  const limitedTarget = limitedTargetOf({ Process: processName }, targetName, prepared.target)
  const now = deps.now()
  // The call waits for at most half of the time that the step has left. The other half is for the call itself.
  const waitUntil = now + Math.min(MAX_WAIT_MS, (deps.endsAt - now) / 2)
  const admission = await deps.limiter.admit({
    target: limitedTarget,
    limits,
    timeoutMs,
    waitUntil,
    abort: deps.abort,
  })
  const notSent = { outcome: { kind: 'aborted', isSent: false }, method, what, owner } as const
  switch (admission.kind) {
    case 'deferred':
      return held(prepared, `${targetName} is at its limits`, admission.delayMs)
    case 'aborted':
      return notSent
    case 'unavailable':
      return { end: { kind: 'released' } }
    case 'admitted':
      try {
        // While this call waited, another call may have ended its step, or another step may have got a 429.
        const end = isEnded() ? notSent : coolDownSince(prepared, deps)
        if (end !== null) return end
        const sent = await sendPrepared(prepared, deps)
        const ms = coolDownOf(sent.outcome, deps.now())
        // The cool-down is stored before the slot is released. Otherwise another replica could use the slot in between.
        if (ms !== null) await deps.limiter.coolDown(limitedTarget, ms)
        return sent
      } finally {
        await admission.end()
      }
  }
}

/** Returns the name under which the calls to a target are counted. A shared target belongs to no process. */
const limitedTargetOf = (
  { Process }: Pick<TargetKey, 'Process'>,
  name: string,
  target: BoundTarget | undefined,
): TargetKey => {
  const shared = target?.shared ?? null
  return shared === null ? { Process, Target: name } : { Process: '', Target: shared }
}

/** @throws {TypeError} if the process has no target of this name. */
function targetOf({ bound }: Pick<ProcessDefinition, 'bound'>, name: string): BoundTarget {
  const target = bound?.targets.get(name)
  if (target === undefined)
    throw new TypeError(
      `the process has no target ${name}${namesInstead(name, bound?.targets.keys() ?? [], 'targets')}`,
    )
  return target
}

const DEFAULT_CALL_MS = 60_000
// The maximum time that a call waits for its target inside its step. A waiting step counts against `PREFETCH`, so
// further steps for a busy target stay in the queue instead of being claimed and deferred repeatedly.
const MAX_WAIT_MS = 5_000
const MAX_URL_LENGTH = 2_000

const storedUrl = ({ origin, pathname }: URL): string =>
  (origin + pathname).slice(0, MAX_URL_LENGTH)
