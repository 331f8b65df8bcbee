/**
 * Calls a step function with its `step` argument, and derives the outcome of the step from what the function does
 * (rules O1 to O3 in run-step.ts).
 */
import { realmOf } from '@integration-host/shared/contracts/realm'
import { hasCode } from '@integration-host/shared/errors'
import type { MarkedEntity } from '@integration-host/shared/provider-profile/queryable-fields'
import { headerValue } from '@integration-host/shared/http/header-list'
import type { Logger } from '@integration-host/shared/observability/logger'
import {
  disownErrors,
  ownErrors,
  type UnhandledKind,
} from '@integration-host/shared/process/error-owner'
import type { z } from 'zod'
import { idempotencyKey } from '../run/item.ts'
import { type ClosingDates, withClosingDate } from './closing-dates.ts'
import { createOnce } from '../entry/create-once.ts'
import type { Marks } from '../entry/marks.ts'
import type { EntryQuery, FoundEntry } from '../entry/book-entry.ts'
import { foundObject, type WrittenObject } from '../entry/written-objects.ts'
import { enteredMembers, type EnteredStep, type LazyMembers, withLazyMembers } from './entered.ts'
import type { Files } from './files.ts'
import {
  type EarlyOutcome,
  isForStep,
  judgeCall,
  mayHaveTakenEffect,
  parseBody,
} from './judge-call.ts'
import { type Response, type StepOutcome, WAIT_TEXT } from '../run/progress.ts'
import type {
  AnyStep,
  CallOptions,
  Child,
  CreatedObject,
  CreateOnceOptions,
  ExecuteOptions,
  InDoubtStep,
  LinkOptions,
  NamedSteps,
  ObjectBody,
  Outcome,
  ProcessSettings,
  Step,
  UpdateOptions,
} from './step.ts'
import {
  type CallName,
  CREATE_ONCE_OPTIONS,
  ENTRY_OPTIONS,
  FAIL_OPTIONS,
  MARK_MEMBERS,
  REPEAT_OPTIONS,
  requireCall,
  type StepRequest,
  type TargetRequest,
} from './step-request.ts'
import {
  type Json,
  type JsonInput,
  normalizedJson,
  normalizedText,
} from '../run/json-normalization.ts'
import { redactedResult, shortRedacted } from './redacted-step.ts'
import { nextRound, reportOf } from './rounds.ts'
import { requireMembers } from './definition.ts'
import { SAFE_METHODS, type SendDeps, sendCall, type SentCall } from './send-call.ts'
import type { StepLog } from './redaction.ts'
import { thrownText } from './thrown-text.ts'
import { type ObjectChange, STALE_OBJECT, updateObject } from './update-object.ts'
import { verdictOf } from '../run/retry-policy.ts'

export interface StepDeps extends SendDeps {
  readonly files: Files
  readonly settings: ProcessSettings
  readonly log: () => Logger
  /** Gets the progress that the step reports, in the form in which it is stored. */
  readonly onReport: (report: Json) => void
  readonly linkTo: (event: string, options: LinkOptions) => string
  readonly closingDates: Pick<ClosingDates, 'of'>
  /** Reads the children that a place of the run has started. */
  readonly children: (place: string) => AsyncIterable<Child>
  /** What steps read from the book of entries, and the marks of the objects that they create. */
  readonly stepBooks: {
    readonly marks: Marks
    readonly recordedEntry: (query: EntryQuery) => Promise<FoundEntry>
  }
}

/** Thrown inside a step function to end it. The outcome of the step is already decided, so the error is ignored. */
class StepEnded extends Error {
  override readonly name = 'StepEnded'
}

/** What a step function and its `confirm` need to know about their run. */
export interface StepInput extends EnteredStep {
  /** The state of this round, as the schema of the step returns it; `undefined` in round 0. */
  readonly state: unknown
  /** Whether an earlier attempt of the step may have taken effect. If so, `confirm` is called first. */
  isInDoubt: boolean
  /** Set if the function undoes the step. Its calls have a key of their own. */
  readonly isUndo?: true
}

/** The argument of a step function and of its `confirm`. */
type GivenStep = Step<unknown, AnyStep | null, NamedSteps, ProcessSettings, string, z.ZodType> &
  Pick<InDoubtStep<AnyStep>, 'find'>

/** Calls a step function or its `confirm`. The outcome is `null` if the function returned without a status. */
export async function perform(
  handler: (step: never) => unknown,
  input: StepInput,
  rounds: Pick<AnyStep, 'state' | 'maxRounds'>,
  deps: StepDeps,
): Promise<{ outcome: StepOutcome | null; returned: unknown }> {
  const { process, claim, isInDoubt } = input
  const { run } = claim
  const round = claim.round?.number ?? 0
  const stepKey = idempotencyKey(run, run.StepName, round)
  const key = input.isUndo === true ? `${stepKey}/undo` : stepKey
  let ended: EarlyOutcome | null = null
  /** Whether the step function has returned. */
  let isOver = false
  /** Whether the outcome can no longer change. */
  let isDecided = false
  /** Whether an error of the step's own code has ended the attempt. */
  let isBroken = false
  /** Whether the attempt ends as soon as no call is in flight, although the step function may never return. */
  let endsEarly = false
  let endEarly = (): void => {}
  let callsInFlight = 0
  let response: Response | null = null
  let completion: { data: Json; endsRun: boolean } | null = null
  let calls = 0
  let fetches = 0
  let hasDoubt = isInDoubt
  /**
   * Whether a successful call may have changed something at its target. If so, a later error leaves the step in doubt.
   */
  let hasResult = false
  /** The objects that `find` has found. They count as written if `confirm` says that the call has taken effect. */
  const found: WrittenObject[] = []
  /** The last response to a `fetch`, without its content, for the error text of a step that waits. */
  let lastReply: string | null = null
  const redaction = process.bound?.redaction ?? null
  const short = (text: string): string => shortRedacted(process, text)
  const log = (): StepLog => redaction?.log(deps.log()) ?? deps.log()

  const end = (outcome: EarlyOutcome): never => {
    ended ??= outcome
    throw new StepEnded()
  }
  /** Ends the attempt with an error of the step's own code. */
  const fails = (error: unknown, errorClass: string): void => {
    isBroken = true
    const failure = { errorClass, error: short(thrownText(error)), response }
    ended =
      deps.abort.reason === null && isBug(error)
        ? { kind: 'failed', ...failure }
        : { kind: 'retry', ...failure, retryAfterMs: null }
  }
  /** Gets the errors of promises that the step does not await, and of the callbacks of its timers and streams. */
  const onUnhandled = (error: unknown, kind: UnhandledKind): void => {
    try {
      if (isDecided) return log().error({ err: error }, LATE_ERROR)
      if (!(error instanceof StepEnded)) {
        log().warn({ err: error }, 'step function left an error unhandled')
        if (ended === null) fails(error, UNHANDLED[kind])
      }
    } catch {
      // The members of the thrown value cannot be read.
      if (ended === null) fails(null, UNHANDLED[kind])
    }
    endsEarly = true
    if (callsInFlight === 0) endEarly()
  }
  /** Makes a call of the step. An unhandled error ends the attempt only when the result of such a call is known. */
  async function inFlight<Result>(call: () => Promise<Result>): Promise<Result> {
    callsInFlight += 1
    try {
      return await call()
    } finally {
      callsInFlight -= 1
      if (endsEarly && callsInFlight === 0) endEarly()
    }
  }
  /** Makes a call. Ends the step if the call must not be sent. */
  async function send(
    request: StepRequest | TargetRequest,
    options: CallOptions,
    callKey: string | null,
    what: CallName,
  ): Promise<SentCall> {
    if (ended !== null) throw new StepEnded()
    requireCall(request, options, what)
    const isEnded = (): boolean => ended !== null || isOver
    const sent = await disownErrors(() =>
      sendCall({ process, run, request, options, callKey, isEnded }, deps),
    )
    return 'end' in sent ? end(sent.end) : sent
  }
  /** Uses the store. If it is unavailable, the step ends, and runs again later. */
  async function orReleased<Result>(use: () => Promise<Result>): Promise<Result> {
    if (ended !== null) throw new StepEnded()
    try {
      return await use()
    } catch (error) {
      if (hasCode(error, 'store_unavailable')) return end({ kind: 'released' })
      throw error
    }
  }
  /** Returns the result of `parse` for the body of a response. Ends the step if `parse` throws. */
  function parsedBody<Data>(
    received: Response,
    what: string,
    parse: (body: unknown) => Data,
  ): Data {
    const parsed = parseBody(received, parse)
    if ('data' in parsed) return parsed.data
    // The step fails without a retry. Its call succeeded, so the target would send the same response again.
    hasDoubt ||= hasResult
    const error = short(`${what} responded with ${received.status}, and the body is ${parsed.why}`)
    return end({ kind: 'failed', errorClass: 'response_invalid', error, response: received })
  }
  /** Returns the successful response to a call. Ends the step with any other outcome of the call. */
  async function judge({ outcome, what, owner }: SentCall): Promise<Response> {
    const judged = await disownErrors(() => judgeCall(outcome, what, owner, deps))
    return 'kind' in judged ? end(judged) : judged
  }
  /** Makes a call that may change something at its target. */
  async function sendEffective(...args: Parameters<typeof send>): Promise<SentCall> {
    const sent = await send(...args)
    if (mayHaveTakenEffect(sent.outcome)) hasDoubt = true
    return sent
  }
  /** Returns the successful response to an effective call, with its data. */
  async function succeed<Data extends JsonInput>(sent: SentCall, { parse }: ExecuteOptions<Data>) {
    const received = await judge(sent)
    response = received
    hasResult = true
    const data = parse === undefined ? (null as Data) : parsedBody(received, sent.what, parse)
    return { ...received, data }
  }
  /** Returns the key of the next call. A further call is another operation for the target, so it has another key. */
  const nextKey = (): string => {
    calls += 1
    return calls === 1 ? key : `${key}/${calls}`
  }
  /** Completes the step with the result of a call or of `complete`. */
  const completeWith = <Result extends { readonly data: JsonInput }>(result: Result) => {
    completion = { data: normalizedJson(result.data), endsRun: completion?.endsRun ?? false }
    return ending(result)
  }

  const members: Omit<GivenStep, keyof LazyMembers> = {
    ...enteredMembers(input, deps.settings),
    attempt: run.Attempt,
    idempotencyKey: key,
    round,
    state: input.state,
    files: deps.files,
    async execute<Data extends JsonInput = Json>(
      request: StepRequest | TargetRequest,
      options: ExecuteOptions<Data> = {},
    ) {
      const callKey = nextKey()
      const succeeded = await inFlight(async () =>
        succeed(await sendEffective(request, options, callKey, 'execute'), options),
      )
      return completeWith(succeeded)
    },
    fetch: (request, options = {}) =>
      inFlight(async () => {
        fetches += 1
        const sent = await send(request, options, `${key}/fetch-${fetches}`, 'fetch')
        const { outcome, method, what, owner } = sent
        const isSafe = SAFE_METHODS.has(method)
        if (!isSafe && mayHaveTakenEffect(outcome)) hasDoubt = true
        if (!isForStep(outcome, owner, deps.now())) {
          await judge(sent)
          throw new StepEnded() // unreachable, because a successful response never ends the step
        }
        const { status, headers } = outcome
        const body = normalizedText(outcome.body)
        response = { status, body }
        lastReply = `${what} responded with ${status}`
        const ok = verdictOf(status) === 'completed'
        if (ok && !isSafe) hasResult = true
        const received = response
        return {
          status,
          ok,
          body,
          header: (name) => headerValue(headers, name.toLowerCase()),
          parse: (parse) => parsedBody(received, what, parse),
        }
      }),
    async update<Data extends JsonInput = Json>(
      entity: string,
      id: string,
      change: ObjectChange,
      options: UpdateOptions<Data> = {},
    ) {
      const succeeded = await inFlight(() =>
        updateObject(
          run.Realm,
          { entity, id, change },
          {
            async read(request, credential) {
              const { timeoutMs } = options
              const given = { ...credential, ...(timeoutMs !== undefined && { timeoutMs }) }
              return judge(await send(request, given, null, 'update'))
            },
            async write(request, credential) {
              const given = { ...options, ...credential }
              const sent = await sendEffective(request, given, nextKey(), 'update')
              const { outcome } = sent
              const isStale =
                outcome.kind === 'answered' &&
                deps.gateway.faultOf(outcome.body)?.code === STALE_OBJECT
              return isStale ? null : succeed(sent, given)
            },
            fail: end,
          },
        ),
      )
      return completeWith(succeeded)
    },
    async createOnce<Entity extends MarkedEntity, Data extends JsonInput = CreatedObject>(
      entity: Entity,
      body: ObjectBody,
      options: CreateOnceOptions<Entity, Data>,
    ) {
      requireMembers(options, CREATE_ONCE_OPTIONS, 'createOnce')
      requireMembers(options.mark, MARK_MEMBERS, 'the mark of createOnce')
      const { mark, onExisting = 'fail', parse, ...call } = options
      const callKey = nextKey()
      const isOnlyCall = calls === 1 && fetches === 0
      const created = await inFlight(() =>
        orReleased(() =>
          createOnce(
            run.Realm,
            { run, holder: callKey },
            { entity, body, mark, onExisting },
            {
              marks: deps.stepBooks.marks,
              visibleAfterMs: deps.gateway.newObjectVisibleMs,
              isInDoubt,
              setDoubt(mayHaveHadEffect) {
                hasDoubt = mayHaveHadEffect || (hasDoubt && !isOnlyCall)
              },
              async read(request, credential) {
                return judge(await send(request, { ...call, ...credential }, null, 'createOnce'))
              },
              async write(request, credential) {
                const given = { ...call, ...credential }
                return succeed(await sendEffective(request, given, callKey, 'createOnce'), given)
              },
              end: (outcome) =>
                end(
                  'error' in outcome && outcome.error !== undefined
                    ? { ...outcome, error: short(outcome.error) }
                    : outcome,
                ),
              onWritten: deps.onWritten,
              onMarkLost: ({ entity: kind, id }) =>
                log().warn(
                  { warning: 'mark_not_kept', entity: kind, entityId: id, field: mark.field },
                  'new object has another value than its mark',
                ),
            },
          ),
        ),
      )
      response = created.response
      hasResult = true
      const data =
        parse === undefined
          ? ({ Id: created.id, SyncToken: created.syncToken } as JsonInput as Data)
          : parsedBody(created.response, `the creation of ${entity}`, parse)
      return completeWith({ ...created.response, data })
    },
    async entry(entity, options) {
      requireMembers(options, ENTRY_OPTIONS, 'entry')
      const { process: of = run.Process, transaction, step: name } = options
      const { Realm: realm } = run
      if (realm === null) return end({ kind: 'failed', ...NO_REALM_OF_ENTRY, response })
      const query = { realm, entity, process: of, transaction, step: name }
      const known = await inFlight(() => orReleased(() => deps.stepBooks.recordedEntry(query)))
      return 'id' in known ? known.id : end({ kind: 'failed', ...known, response })
    },
    find: (request, options = {}) =>
      inFlight(async () => {
        const sent = await sendEffective(request, options, null, 'find')
        const { outcome } = sent
        if (outcome.kind === 'answered' && (outcome.status === 404 || outcome.status === 410))
          return null
        const succeeded = await succeed(sent, options)
        const { credential } = options
        if (credential !== undefined)
          found.push(...foundObject(realmOf(credential), succeeded.body, Date.parse(run.CreatedAt)))
        return succeeded
      }),
    complete<Data extends JsonInput = null>(data?: Data) {
      return completeWith({ data: (data ?? null) as Data })
    },
    fail(reason, options = {}) {
      requireMembers(options, FAIL_OPTIONS, 'fail')
      return end({
        kind: 'failed',
        errorClass: 'step_failed',
        error: short(reason),
        response,
        ...(options.undo === true && { undo: true }),
      })
    },
    waitFor(delayMs) {
      if (!(delayMs >= 0)) throw new RangeError('waitFor expects milliseconds from now')
      const later = { kind: 'later', delayMs: Math.min(delayMs, MAX_WAIT_MS) } as const
      return end(lastReply === null ? later : { ...later, error: `${WAIT_TEXT}; ${lastReply}` })
    },
    repeat(state, options = {}) {
      requireMembers(options, REPEAT_OPTIONS, 'repeat')
      const { afterMs = 0 } = options
      if (!(afterMs >= 0)) throw new RangeError('repeat expects afterMs in milliseconds from now')
      const next = nextRound(round, state, rounds)
      return 'round' in next
        ? end({
            kind: 'repeated',
            response,
            round: next.round,
            delayMs: Math.min(afterMs, MAX_WAIT_MS),
          })
        : end({ kind: 'failed', ...next, error: short(next.error), response })
    },
    report: (progress) => deps.onReport(reportOf(progress, deps.now(), short)),
    linkTo: deps.linkTo,
    children: deps.children,
    setStatus() {
      completion = { data: completion?.data ?? null, endsRun: true }
      return ending({ data: null })
    },
  }
  const step: GivenStep = withLazyMembers(members, { abort: deps.abort, log })

  let returned: unknown
  try {
    returned = await new Promise((resolve, reject) => {
      endEarly = () => resolve(undefined)
      const running = ownErrors(onUnhandled, () => (handler as (given: unknown) => unknown)(step))
      Promise.resolve(running).then(resolve, reject)
    })
  } catch (error) {
    if (ended === null && !(error instanceof StepEnded)) {
      log().warn({ err: error }, 'step function threw an error')
      fails(error, 'step_threw')
    }
  }
  isOver = true
  // Node reports an unhandled rejection only when no further promise can continue, so after this function would have
  // returned. The next turn of the event loop comes after that.
  if (ended === null) await new Promise((resolve) => setImmediate(resolve))
  isDecided = true
  // If an earlier call of the step has succeeded, its result is lost with this attempt. The step is then in doubt,
  // because the call may have changed something at the target.
  if (isBroken) hasDoubt ||= hasResult
  // These casts are needed because the functions above assign `ended` and `completion`, which TypeScript's control flow
  // analysis ignores.
  const given = ended as EarlyOutcome | null
  const early =
    given?.kind === 'blocked' ? await withClosingDate(given, { process, run }, deps) : given
  const completed = completion as { data: Json; endsRun: boolean } | null
  if (early === null && completed !== null && found.length > 0) deps.onWritten(found)
  const outcome: StepOutcome | null =
    early !== null
      ? hasDoubt && early.kind !== 'repeated'
        ? { ...early, isInDoubt: true }
        : early
      : completed === null
        ? null
        : { kind: 'completed', response, ...completed }
  return { outcome: redaction === null ? outcome : redactedResult(redaction, outcome), returned }
}

const NO_REALM_OF_ENTRY = {
  errorClass: 'realm_missing',
  error: 'entry needs the company of the run, but the run has no Realm',
} as const

/** Marks what a step function may return. The cast is sound because the mark exists in the types only. */
const ending = <Ended extends { readonly data: unknown }>(ended: Ended) =>
  ended as Ended & Outcome<Ended['data']>

/** The log message of an unhandled error of a step whose outcome is already decided. */
export const LATE_ERROR =
  'step left work behind that failed after its attempt had ended: await what a step starts'

/** The error classes of errors that the step did not handle. */
const UNHANDLED = {
  rejection: 'step_unhandled_rejection',
  exception: 'step_uncaught_exception',
} as const satisfies Record<UnhandledKind, string>

/** The error classes of the step's own code. After an abort, such an error is not a failure of the step. */
export const CODE_ERRORS: ReadonlySet<string> = new Set(['step_threw', ...Object.values(UNHANDLED)])

/**
 * Whether an error is a bug of the step's own code, so that another attempt would fail in the same way. An error with a
 * `cause` does not count as a bug, because `fetch` throws a TypeError with a cause if the network fails.
 */
const isBug = (error: unknown): boolean =>
  (error instanceof TypeError || error instanceof ReferenceError) && error.cause === undefined

const MAX_WAIT_MS = 31_536_000_000
