import type { Logger } from '@integration-host/shared/observability/logger'
import type { Clock } from '@integration-host/shared/process/clock'
import {
  type SpanDescription,
  type Tracing,
  tracing,
} from '@integration-host/shared/observability/telemetry'
import type { DecisionLinks } from '../decision/decision-links.ts'
import { hasDecisions, linksOfRun } from '../decision/decisions.ts'
import { createCoolDowns } from '../step/cool-downs.ts'
import {
  limitsOf,
  type ProcessDefinition,
  type StepLimits,
  stepUnknownError,
} from '../step/definition.ts'
import { eventPlaces } from '../step/event.ts'
import type { EntryKeeper } from '../entry/entry-keeper.ts'
import type { WrittenObject } from '../entry/written-objects.ts'
import type { StepCall } from '../run/progress.ts'
import { advance, type StepOutcome, type Transition } from '../run/progress.ts'
import { advanceUndo } from '../run/undo.ts'
import type { StepDeps } from '../step/perform-step.ts'
import { runStep } from '../step/run-step.ts'
import { StepAbort } from '../step/step-abort.ts'
import { createTargetLimiter, type WaitForClock } from '../step/target-limiter.ts'
import type { Attempt, FinishedItem } from '../run/item.ts'
import type { Json } from '../run/json-normalization.ts'
import { type RunKey, runKey } from '../run/run.ts'
import type { RecordedPage } from '../run/families.ts'
import { childrenStart, outcomeOfUndo, readChildren } from './children.ts'
import type { WatchedObject } from '../run/events.ts'
import type { Claim, RunState, TransactionSource } from '../run/transaction-source.ts'
import type { Gate } from './gate.ts'
import { applyAbortReason, type StepInFlight, type StepsInFlight } from './steps-in-flight.ts'
import { ABORTED, type StoreRetry } from './store-retry.ts'
import type { Traceparents } from './step-queue.ts'
import type { TransitionPublisher } from './transition-publisher.ts'

/** What a worker needs for every step, and what `run-step.ts` gets unchanged. */
type OfEveryStep = 'call' | 'files' | 'gateway' | 'settings' | 'closingDates' | 'stepBooks'

export interface ClaimedStepDeps extends Pick<StepDeps, OfEveryStep> {
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly source: TransactionSource
  readonly publisher: Pick<
    TransitionPublisher,
    'publishEvent' | 'publishHeld' | 'publishStep' | 'publishSteps'
  >
  readonly stepsInFlight: Pick<StepsInFlight, 'add'>
  readonly gate: Pick<Gate, 'isOpen' | 'pausedCompanyOf'>
  readonly retryStore: StoreRetry
  /** Aborted only at the very end of a shutdown, because outcomes must still be recorded while the worker drains. */
  readonly cutOff: AbortSignal
  /** Stores that the run waits for a change of the object, and has the object read. */
  readonly beginWatch: (object: WatchedObject, claim: Claim) => Promise<void>
  /** Looks at the children of a run that has begun to wait for them. */
  readonly settleFamilies: (run: RunKey) => Promise<void>
  readonly checkOnline: () => Promise<boolean>
  readonly entryKeeper: Pick<EntryKeeper, 'entriesOf'>
  readonly decisionLinks: Pick<DecisionLinks, 'addressOf' | 'ready'>
  readonly traceparentOf: Traceparents
  readonly log: Logger
  readonly clock: Clock
  readonly waitForClock?: WaitForClock | undefined
  readonly random: () => number
  /** Counts the outcome of a step. `ms` is the duration of the step, and is given only if the outcome was recorded. */
  readonly count: (process: string, step: string, outcome: string, ms?: number) => void
}

/** What was recorded for a step. */
interface Ended extends RecordedPage {
  readonly transition: Transition
  readonly outcome: StepOutcome
}

/** Builds a function that runs the step of a claim, and the following steps as long as the lease continues. */
export function createClaimedStepRunner(deps: ClaimedStepDeps) {
  const { source, publisher, gate, retryStore, log, clock, random } = deps
  const { call, files, gateway, settings, closingDates, stepBooks } = deps
  const ofEveryStep = { call, files, gateway, settings, closingDates, stepBooks }
  const { now } = clock
  const coolDowns = createCoolDowns(now)
  const limiter = createTargetLimiter({ source, clock, waitForClock: deps.waitForClock })

  async function runClaimed(known: ProcessDefinition, first: Claim): Promise<void> {
    let next: Claim | null = first
    while (next !== null) {
      const claim: Claim = next
      // The definition is read again for each step, because a reload may have replaced it while the previous step ran.
      const definition = deps.processes.get(known.name) ?? known
      next = await (tracing === undefined
        ? runAndRecord(definition, claim)
        : tracing.span(stepSpan(claim), () => runAndRecord(definition, claim)))
    }
  }

  /** Runs a claimed step and records its outcome. Returns the claim of the next step if the lease continues. */
  async function runAndRecord(definition: ProcessDefinition, claim: Claim): Promise<Claim | null> {
    const { run } = claim
    let child: Logger | null = null
    // The child logger is created for the first log line, so that a step without log lines does not need one.
    const stepLog = (): Logger => (child ??= log.child(logFieldsOf(run)))
    if (log.isLevelEnabled('info')) stepLog().info('step started')
    if (run.Version === 1 || run.Attempt > 1) publisher.publishEvent(run)
    const startedAt = now()
    const last: LastOfAttempt = { written: [] }
    const limits = limitsOf(definition, run.StepName)
    const outcome = await attempt(definition, claim, limits, stepLog, last)
    if (outcome === null) {
      deps.count(run.Process, run.StepName, 'lost')
      stepLog().warn('step lost its lease')
      return null
    }
    if (outcome.kind === 'parked' && outcome.watched !== undefined) {
      const { watched } = outcome
      // Before the run waits: no change after this can be missed (change/look.ts, L1).
      const begun = await retryStore(() => deps.beginWatch(watched, claim), deps.cutOff)
      if (begun === ABORTED) return null
    }
    const { stepNames: steps } = definition
    const finished = claim.items.map(({ StepName }) => StepName)
    const mayContinue = gate.isOpen(definition)
    const following = steps[steps.indexOf(run.StepName) + 1] ?? ''
    const isInline =
      (definition.dispatch === 'inline' || definition.events.includes(following)) && mayContinue
    const { undoable, undoesFailure, events } = definition
    const options = { steps, finished, policy: limits.retry, random: random() }
    const { report, written } = last
    const entries =
      written.length === 0
        ? []
        : await retryStore(() => deps.entryKeeper.entriesOf(run, written), deps.cutOff)
    if (entries === ABORTED) return null
    const transitionOf = (ended: StepOutcome): Transition => {
      const advanced =
        run.Status === 'Undoing'
          ? advanceUndo(run, ended, {
              ...options,
              isInline: definition.dispatch === 'inline' && mayContinue,
              mayContinue,
              items: claim.items,
              undoable,
              events,
            })
          : advance(run, ended, { ...options, isInline, mayContinue, undoesFailure })
      return {
        ...advanced,
        ...(last.call !== undefined && { call: last.call }),
        ...(entries.length > 0 && { entries }),
        ...(report !== undefined &&
          advanced.item !== null && { item: { ...advanced.item, report } }),
      }
    }
    const ended = await retryStore(
      () => record(definition, claim, outcome, transitionOf),
      deps.cutOff,
    )
    // The outcome is not recorded, because a shutdown ended the retries against the unavailable store. When the lease
    // has expired, lease recovery makes the run due again.
    if (ended === ABORTED) return null
    if (ended === null) {
      deps.count(run.Process, run.StepName, 'fenced')
      stepLog().warn('step outcome was rejected because the lease was lost')
      return null
    }
    const { run: recorded, transition, outcome: reached, due } = ended
    const durationMs = now() - startedAt
    const moved = run.Realm === null ? recorded : { ...recorded, Realm: run.Realm }
    // The transition is published before it is counted and logged, because clients wait for its event.
    let published: Promise<void> | undefined
    if (transition.continues === true) publisher.publishEvent(recorded)
    else if (reached.kind === 'held') publisher.publishHeld(moved, transition.delayMs ?? 0)
    else published = publisher.publishStep(moved, transition.delayMs ?? 0)
    publisher.publishSteps(due)
    // An outcome that would lead to a retry is counted as a failure if no attempt is left.
    const hasFailed = transition.status === 'Failed' || transition.status === 'UndoFailed'
    const result = hasFailed ? 'failed' : reached.kind
    deps.count(run.Process, run.StepName, result, durationMs)
    if (tracing !== undefined) traceOutcome(tracing, result, transition)
    const details = {
      outcome: result,
      status: recorded.Status,
      durationMs,
      ...(transition.errorClass !== null && { errorClass: transition.errorClass }),
    }
    const message = EXPECTED[reached.kind]
    // The 429 that began the cool-down was already logged as a warning. Many steps of one company may wait for the same
    // cool-down, so their waits, and further 429 responses during the waits, are logged only at the level debug.
    if (reached.kind === 'held' && (reached.response === null || reached.isRepeated === true))
      stepLog().debug(details, 'step waits for the end of a cool-down')
    else if (message === undefined) stepLog().warn(details, 'step did not complete in this attempt')
    else if (log.isLevelEnabled('info')) stepLog().info(details, message)
    if (transition.continues === true) return claimAfter(claim, recorded, transition)
    await published
    if (reached.kind === 'parked') await lookAgain(definition, claim)
    if (reached.kind === 'joining') await deps.settleFamilies(run)
    return null
  }

  /** Records the outcome of a step. The children of a place are stored or undone with it, and may decide the outcome. */
  async function record(
    definition: ProcessDefinition,
    claim: Claim,
    outcome: StepOutcome,
    transitionOf: (ended: StepOutcome) => Transition,
  ): Promise<Ended | null> {
    const { run, lease } = claim
    let reached = outcome
    let transition: Transition | null = null
    const choose = (ended: StepOutcome): Transition => {
      reached = ended
      transition = transitionOf(ended)
      return transition
    }
    const done = (page: RecordedPage | null): Ended | null =>
      page === null || transition === null ? null : { ...page, transition, outcome: reached }
    if (outcome.kind === 'undo_children')
      return done(await source.recordUndoOfChildren(lease, (page) => choose(outcomeOfUndo(page))))
    if (outcome.kind === 'children') {
      const { list } = outcome
      const own = definition.steps.get(run.StepName)?.forEach?.process ?? definition
      const start = childrenStart(claim, list, deps.processes.get(list.process) ?? own)
      if ('page' in start)
        return done(
          await source.recordChildren(lease, start.page, (page) => choose(start.outcomeOf(page))),
        )
      reached = start
    }
    const recorded = await source.record(lease, choose(reached))
    return done(recorded && { run: recorded, due: [] })
  }

  /** Looks once more for an event that was received while the run had its lease. The sweeper does so if this fails. */
  async function lookAgain(definition: ProcessDefinition, { run }: Claim): Promise<void> {
    const look = () => source.settleWaits(eventPlaces(definition), runKey(run))
    const moved = await retryStore(look, deps.cutOff)
    if (moved !== ABORTED) for (const next of moved) await publisher.publishStep(next)
  }

  /** Returns when the first attempt of the step began, since the run was queued or resumed, in epoch ms. */
  async function firstAttemptAt({ run, lease }: Claim): Promise<number> {
    const { Process, TransactionID, ReplayID, StepName, Attempt: number, InDoubt } = run
    const startedAt = Date.parse(lease.startedAt)
    if (number <= 1 && !InDoubt) return startedAt
    const read = () => source.get(Process, TransactionID, ReplayID, { bodies: false })
    const found = await retryStore(read, deps.cutOff)
    if (found === ABORTED || found === null) return startedAt
    const isFirst = (one: Attempt): boolean => one.StepName === StepName && one.Attempt === 1
    const first = found.attempts.findLast(isFirst)
    return first === undefined ? startedAt : Date.parse(first.StartedAt)
  }

  /** Runs the step function. Returns `null` if the lease was lost, because then no outcome can be recorded. */
  async function attempt(
    definition: ProcessDefinition,
    claim: Claim,
    limits: StepLimits,
    stepLog: () => Logger,
    last: LastOfAttempt,
  ): Promise<StepOutcome | null> {
    const { run } = claim
    const { InDoubt: isInDoubt } = run
    // The deadline of the run has passed. The step is not run and the lease is released, so the run fails as
    // `deadline_exceeded`.
    if (isPastDeadline(run)) return { kind: 'released', isInDoubt }
    const pausedCompany = gate.pausedCompanyOf(run)
    if (pausedCompany !== null) return { kind: 'paused', realm: pausedCompany }
    const handler = definition.steps.get(run.StepName)
    if (handler === undefined && run.Status === 'Undoing' && !isInDoubt) return { kind: 'left' }
    if (handler === undefined)
      return { ...failure('step_unknown', stepUnknownError(run, definition)), isInDoubt }
    // The attempt is counted at the claim: it counts even if its worker dies before recording an outcome. Otherwise a
    // step that crashes its worker would crash one worker after another without end.
    if (run.Attempt > limits.retry.maxAttempts)
      return {
        ...failure('attempts_used_up', 'workers were lost in every attempt of this step'),
        isInDoubt,
      }
    if (claim.isUnreadable === true)
      return {
        ...failure(
          'payload_unreadable',
          'initial data or a recorded result cannot be decrypted; correct PAYLOAD_KEYS, then resume',
        ),
        isInDoubt,
      }
    const abort = new StepAbort()
    const step: StepInFlight = { claim, needsInternet: definition.requireInternet, abort }
    const remove = deps.stepsInFlight.add(step)
    const endsAt = now() + limits.timeoutMs
    const timer = clock.setTimeout(() => abort.abort('timeout'), limits.timeoutMs)
    if (!gate.isOpen(definition)) abort.blockNewCalls()
    try {
      // `linkTo` returns an address at once, so the key is read before.
      const mayLink = definition.events.length > 0 && hasDecisions(definition)
      if (mayLink) await retryStore(() => deps.decisionLinks.ready(), deps.cutOff)
      const beganAt = mayLink ? await firstAttemptAt(claim) : 0
      const stepDeps: StepDeps = {
        ...ofEveryStep,
        coolDowns,
        limiter,
        endsAt,
        log: stepLog,
        // If tracing is on, the HTTP client replaces this header with one that belongs to the same trace.
        traceparent: () => tracing?.headers()['traceparent'] ?? deps.traceparentOf(run),
        onCall(sent) {
          last.call = sent
        },
        onWritten: (written) => last.written.push(...written),
        onReport: (report) => {
          last.report = report
          step.report = report
        },
        linkTo: (...args) => linksOfRun(deps.decisionLinks, definition, run, beganAt, now)(...args),
        children: (place) => readChildren(source, run, place),
        abort,
        isOnline: async () => !definition.requireInternet || (await deps.checkOnline()),
        now,
      }
      const running =
        (run.Status === 'Undoing' ? undefined : definition.runBuiltIn?.(claim, stepDeps)) ??
        runStep(handler, claim, definition, stepDeps)
      const outcome = await new Promise<StepOutcome | 'abandoned'>((resolve) => {
        void running.then(resolve)
        abort.watch(() => {
          if (abort.reason !== null)
            clock.setTimeout(() => resolve('abandoned'), IGNORED_SIGNAL_MS).unref()
        })
      })
      return applyAbortReason(outcome, abort.reason)
    } finally {
      timer[Symbol.dispose]()
      remove()
    }
  }

  return runClaimed
}

/** What the attempt has sent and reported last, and all that its calls have written to the books of companies. */
interface LastOfAttempt {
  call?: StepCall
  report?: Json
  readonly written: WrittenObject[]
}

const logFieldsOf = (run: Claim['run']) => ({
  process: run.Process,
  transactionId: run.TransactionID,
  replayId: run.ReplayID,
  step: run.StepName,
  attempt: run.Attempt,
})

const stepSpan = ({ run }: Claim): SpanDescription => ({
  name: `step ${run.StepName}`,
  kind: 'internal',
  attributes: {
    'integration.process': run.Process,
    'integration.transaction_id': run.TransactionID,
    'integration.replay_id': run.ReplayID,
    'integration.step': run.StepName,
    'integration.attempt': run.Attempt,
  },
})

function traceOutcome(
  traces: Tracing,
  outcome: StepOutcome['kind'],
  { errorClass }: Transition,
): void {
  traces.annotate({ 'integration.outcome': outcome })
  if (outcome === 'failed' || outcome === 'retry') traces.fail(errorClass ?? outcome)
}

/** Returns the claim of the next step. The claim equals the stored state after a transition that keeps the lease. */
function claimAfter(
  { lease: { round: _round, ...lease }, run, items }: Claim,
  next: RunState,
  { item, isUndo }: Pick<Transition, 'item' | 'isUndo'>,
): Claim {
  const { StepName } = run
  const done: FinishedItem = {
    StepName,
    Status: item?.status ?? 'Completed',
    ResponseStatus: item?.response?.status ?? null,
    ResponseBody: item?.response?.body ?? null,
    Data: (item?.data ?? null) as FinishedItem['Data'],
    Error: item?.error ?? null,
  }
  return {
    lease: {
      ...lease,
      step: next.StepName,
      version: next.Version,
      attempt: next.Attempt,
      startedAt: next.UpdatedAt,
    },
    run: { ...run, ...next },
    items:
      isUndo === true
        ? items.filter((other) => other.StepName !== StepName)
        : item === null
          ? items
          : [...items, done],
  }
}

/**
 * Whether the lease began after the deadline of the run. A run cannot be claimed after its deadline. But the lease for
 * the next step begins when the outcome of the previous step is recorded, which can be after the deadline. Both times
 * come from the clock of the source.
 */
const isPastDeadline = ({ Status, DeadlineAt, UpdatedAt }: Claim['run']): boolean =>
  Status !== 'Undoing' && DeadlineAt !== null && Date.parse(UpdatedAt) >= Date.parse(DeadlineAt)

/** The log messages of the outcomes that are not problems. */
const EXPECTED: Partial<Record<StepOutcome['kind'], string>> = {
  completed: 'step completed',
  skipped: 'step skipped',
  repeated: 'step called repeat and starts its next round',
  parked: 'run waits for an event or a change',
  joining: 'run waits for its children',
  undone: 'step undone',
  left: 'step has nothing to undo',
  later: 'step called waitFor and starts again later',
  blocked: 'run waits until an operator retries it',
  paused: 'run waits for the resume of its company',
}

const failure = (errorClass: string, error: string) =>
  ({ kind: 'failed', errorClass, error, response: null }) as const

/** The milliseconds for which the worker still waits for a step after its signal was aborted. */
const IGNORED_SIGNAL_MS = 500
