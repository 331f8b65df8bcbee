/**
 * Runs steps: claim, run, record, publish, ack.
 *
 * R1  A step runs only under a lease, and its outcome is recorded only with it: of two workers one counts.
 * R2  A delivery is acknowledged after the outcome is committed and the next message is out (or failed:
 *     the row is the outbox, the pull sends it again). A crash in between repeats a message, never a result.
 * R3  A delivery waits for a source that is away: nothing is lost and nothing is charged.
 * R4  Leaving, or losing the internet, aborts what was not sent and gives the attempt back; what was sent
 *     runs to its end, or to the end of our patience: then the attempt is given back as well, in doubt.
 * R5  A worker that goes on by itself (`dispatch: 'inline'`) does so under the lease that the last record
 *     renewed: a crash resumes at the last recorded step, when that lease has run out.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { hasCode } from '@integration-host/shared/errors'
import type { Logger } from '@integration-host/shared/logger'
import { type SpanDescription, type Tracing, tracing } from '@integration-host/shared/telemetry'
import { createCredentialHolds } from '../process/credential-holds.ts'
import type { ProcessDefinition } from '../process/definition.ts'
import type { HttpCall } from '../process/http-call.ts'
import { advance, type StepOutcome, type Transition } from '../process/progress.ts'
import { runStep } from '../process/run-step.ts'
import type { ProcessSettings } from '../process/step.ts'
import { StepAbort, type AbortReason } from '../process/step-abort.ts'
import { type Run, keyText, type RunKey } from '../transaction/run.ts'
import type { FinishedItem } from '../transaction/item.ts'
import {
  type Claim,
  type RunState,
  type ProcessOutline,
  RENEW_MS,
  type TransactionSource,
} from '../transaction/transaction-source.ts'
import type { TransitionPublisher } from './transition-publisher.ts'
import type { StepArrival, StepConsumer, StepQueue } from './step-queue.ts'
import { traceparentOf } from './trace.ts'

export interface Worker extends AsyncDisposable {
  /** What the probes say; steps of processes that need the internet run only while it is there. */
  setOnline(isOnline: boolean): void
  setPaused(paused: ReadonlySet<string>): void
  /** Whether the steps of a process are taken now. */
  isConsuming(process: string): boolean
  /** Aborts the step of a run that was cancelled with this version, if this worker has it. */
  abort(run: RunKey & Pick<Run, 'Version'>): void
  readonly stepsInHand: number
}

export interface WorkerDeps {
  readonly source: TransactionSource
  readonly queue: StepQueue
  readonly publisher: TransitionPublisher
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly call: HttpCall
  readonly gateway: { readonly url: string; readonly key: string }
  readonly settings: ProcessSettings
  readonly checkOnline: () => Promise<boolean>
  readonly log: Logger
  readonly owner: string
  readonly prefetch: number
  readonly now: () => number
  readonly random: () => number
  /** Counts what steps came to, by outcome; milliseconds for those whose outcome was recorded. */
  readonly count: (process: string, step: string, outcome: string, ms?: number) => void
  readonly renewMs?: number
  /** Milliseconds over which steps start again after the internet came back. */
  readonly rampMs?: number
  /** Milliseconds that steps in hand get at the end, before they are aborted. */
  readonly leaveMs?: number
}

interface StepInHand {
  readonly claim: Claim
  readonly needsInternet: boolean
  readonly stop: StepAbort
}

/** The patience with a source that is away was ended. */
const GONE = Symbol('gone')

export const outlineOf = ({ name, stepNames: steps }: ProcessDefinition): ProcessOutline => ({
  name,
  steps,
})

export function createWorker(deps: WorkerDeps): Worker {
  const { source, queue, publisher, processes, log, owner, now, random } = deps
  const { renewMs = RENEW_MS, rampMs = 2_000, leaveMs = 5_000 } = deps
  const inHand = new Map<string, StepInHand>()
  const holds = createCredentialHolds(now)
  const consumers = new Map<string, readonly StepConsumer[]>()
  const leaving = new AbortController()
  /** Cut off only at the very end: outcomes are still recorded while leaving. */
  const gone = new AbortController()
  let isOnline: boolean | null = null
  /** Null until the source has told: a paused process must not run for a moment at each start. */
  let paused: ReadonlySet<string> | null = null
  let rampEndsAt = 0
  const stopping = new Set<Promise<unknown>>()

  const isWanted = ({ name, requireInternet }: ProcessDefinition): boolean =>
    !leaving.signal.aborted &&
    paused?.has(name) === false &&
    (isOnline === true || !requireInternet)

  /**
   * Brings the consumers to what is wanted; resolves when those that were stopped have nothing in hand.
   * New ones do not wait for that: a long call must not hold up the return.
   */
  function reconcile(): Promise<unknown> {
    for (const definition of processes.values()) {
      const { name } = definition
      const current = consumers.get(name)
      if (isWanted(definition) && current === undefined) consumers.set(name, start(definition))
      if (isWanted(definition) || current === undefined) continue
      consumers.delete(name)
      const stopped = Promise.all(current.map((consumer) => consumer.cancel()))
      stopping.add(stopped)
      void stopped.finally(() => stopping.delete(stopped))
    }
    return Promise.allSettled(stopping)
  }

  const start = (definition: ProcessDefinition): StepConsumer[] =>
    definition.stepNames.map((step) =>
      queue.consume(definition.name, step, deps.prefetch, (arrival) =>
        handle(definition, step, arrival),
      ),
    )

  async function handle(
    definition: ProcessDefinition,
    step: string,
    arrival: StepArrival,
  ): Promise<'ack' | 'requeue'> {
    const { due } = arrival
    const isOurs = due?.Process === definition.name && due.step === step
    if (due === null || !isOurs) return bury(definition.name, arrival, faultOf(arrival))
    await ramp()
    // Not requeued: the broker counts that, and would put a message aside that only waited for the internet.
    if (!isWanted(definition)) return again(arrival)

    const isFirst = step === definition.stepNames[0]
    const result = await patiently(() => source.claim({ ...due, isFirst, owner }), leaving.signal)
    if (result === GONE) return again(arrival)
    switch (result.kind) {
      case 'unknown':
        return bury(definition.name, arrival, 'unknown_transaction')
      case 'stale':
        deps.count(definition.name, step, 'stale')
        return 'ack'
      case 'early':
        await queue.publish({ ...due, version: result.version }, result.delayMs).catch(() => {})
        return 'ack'
      case 'claimed':
        return work(definition, result.claim)
    }
  }

  async function work(definition: ProcessDefinition, first: Claim): Promise<'ack'> {
    let next: Claim | null = first
    while (next !== null) {
      const claim: Claim = next
      next = await (tracing === undefined
        ? workStep(definition, claim)
        : tracing.span(stepSpan(claim), () => workStep(definition, claim)))
    }
    return 'ack'
  }

  /** Runs the step of a claim and records what it came to; the claim of the next step, if it `continues`. */
  async function workStep(definition: ProcessDefinition, claim: Claim): Promise<Claim | null> {
    const { run, lease } = claim
    const about = {
      process: run.Process,
      transactionId: run.TransactionID,
      replayId: run.ReplayID,
      step: run.StepName,
      attempt: run.Attempt,
    }
    let child: Logger | null = null
    // Made when somebody writes to it: a quiet log should cost nothing.
    const stepLog = (): Logger => (child ??= log.child(about))
    if (log.isLevelEnabled('info')) stepLog().info('step start')
    if (run.Version === 1 || run.Attempt > 1) publisher.tell(run)
    const startedAt = now()
    const outcome = await attempt(definition, claim, stepLog)
    if (outcome === null) {
      deps.count(run.Process, run.StepName, 'lost')
      stepLog().warn('step lost its lease')
      return null
    }
    const { retry: policy, stepNames: steps } = definition
    const isInline = definition.dispatch === 'inline' && isWanted(definition)
    const transition = advance(run, outcome, { steps, policy, random: random(), isInline })
    const recorded = await patiently(() => source.record(lease, transition), gone.signal)
    // The source is away and we leave: the lease runs out, the pull brings the run back.
    if (recorded === GONE) return null
    if (recorded === null) {
      deps.count(run.Process, run.StepName, 'fenced')
      stepLog().warn('step outcome came too late')
      return null
    }
    const durationMs = now() - startedAt
    // A retry that there is no attempt left for is a failure.
    const cameTo = transition.status === 'Failed' ? 'failed' : outcome.kind
    deps.count(run.Process, run.StepName, cameTo, durationMs)
    if (tracing !== undefined) traceOutcome(tracing, cameTo, transition)
    const told = {
      outcome: cameTo,
      status: recorded.Status,
      durationMs,
      ...(transition.errorClass !== null && { errorClass: transition.errorClass }),
    }
    const isExpected = outcome.kind === 'completed' || outcome.kind === 'later'
    if (!isExpected) stepLog().warn(told, 'step not completed')
    else if (log.isLevelEnabled('info'))
      stepLog().info(told, outcome.kind === 'later' ? 'step waits' : 'step completed')
    if (transition.continues === true) {
      publisher.tell(recorded)
      return claimAfter(claim, recorded, transition)
    }
    await publisher.announce(recorded, transition.delayMs)
    return null
  }

  /** What the step came to; null when its lease is lost and nobody wants to know. */
  async function attempt(
    definition: ProcessDefinition,
    claim: Claim,
    stepLog: () => Logger,
  ): Promise<StepOutcome | null> {
    const { run } = claim
    const { InDoubt: isInDoubt } = run
    const handler = definition.steps.get(run.StepName)
    if (handler === undefined)
      return { ...used('step_unknown', 'the process has no such step'), isInDoubt }
    // Workers that die in the step charge it, or it would take every one of them down, for ever.
    if (run.Attempt > definition.retry.maxAttempts)
      return {
        ...used('attempts_used_up', 'workers were lost in every attempt of this step'),
        isInDoubt,
      }
    const hand: StepInHand = {
      claim,
      needsInternet: definition.requireInternet,
      stop: new StepAbort(),
    }
    const key = keyText(run)
    inHand.set(key, hand)
    const { stop } = hand
    const timer = setTimeout(() => stop.stop('timeout'), definition.stepTimeoutMs)
    if (!isWanted(definition)) stop.blockNewCalls()
    try {
      const running = runStep(handler, claim, definition.stepNames, {
        call: deps.call,
        gateway: deps.gateway,
        holds,
        settings: deps.settings,
        log: stepLog,
        traceparent: () => traceparentOf(run),
        stop,
        isOnline: async () => !definition.requireInternet || (await deps.checkOnline()),
        now,
      })
      const outcome = await new Promise<StepOutcome | 'abandoned'>((resolve) => {
        void running.then(resolve)
        stop.watch(() => {
          if (stop.reason !== null)
            setTimeout(() => resolve('abandoned'), IGNORED_SIGNAL_MS).unref()
        })
      })
      return judged(outcome, stop.reason)
    } finally {
      clearTimeout(timer)
      if (inHand.get(key) === hand) inHand.delete(key)
    }
  }

  /** Sends a message again as a fresh one, to be worked on later. */
  async function again({ due }: StepArrival): Promise<'ack' | 'requeue'> {
    if (due === null) return 'ack'
    try {
      await queue.publish(due, 0)
      return 'ack'
    } catch {
      return 'requeue'
    }
  }

  async function bury(
    process: string,
    arrival: StepArrival,
    reason: string,
  ): Promise<'ack' | 'requeue'> {
    log.warn(
      { process, reason, messageId: arrival.messageId.slice(0, 200) },
      'message was put aside',
    )
    try {
      await queue.bury(process, arrival, reason)
      return 'ack'
    } catch {
      return 'requeue'
    }
  }

  function faultOf({ due }: StepArrival): string {
    if (due === null) return 'malformed'
    const named = processes.get(due.Process)
    if (named === undefined) return 'unknown_process'
    return named.steps.has(due.step) ? 'wrong_queue' : 'unknown_step'
  }

  /** Spreads the first steps after a return: what waited must not start in one moment. */
  async function ramp(): Promise<void> {
    const leftMs = rampEndsAt - now()
    if (leftMs > 0) await sleep(random() * leftMs, null, { signal: leaving.signal }).catch(() => {})
  }

  /** R3. */
  async function patiently<Result>(
    ask: () => Promise<Result>,
    signal: AbortSignal,
  ): Promise<Result | typeof GONE> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await ask()
      } catch (error) {
        if (!hasCode(error, 'store_unavailable')) throw error
        if (signal.aborted) return GONE
        const ceilingMs = Math.min(2_000, 50 * 2 ** Math.min(tries, 6))
        await sleep(ceilingMs * (0.5 + random() / 2), null, { signal }).catch(() => {})
      }
    }
  }

  const renewing = setInterval(() => {
    const hands = [...inHand.values()]
    if (hands.length === 0) return
    source.renew(hands.map(({ claim }) => claim.lease)).then(
      (lost) => {
        for (const lease of lost) {
          const hand = inHand.get(keyText(lease))
          if (hand?.claim.lease.version === lease.version) hand.stop.stop('lost')
        }
      },
      () => log.debug('leases could not be renewed'),
    )
  }, renewMs)

  const gated = (): boolean =>
    [...processes.values()].some(({ requireInternet }) => requireInternet)

  return {
    setOnline(online) {
      const before = isOnline
      isOnline = online
      if (!gated()) return void reconcile()
      if (online) {
        log.info('coordinator starting')
        if (before === false) rampEndsAt = now() + rampMs
        return void reconcile()
      }
      log.warn('coordinator cancellation requested')
      for (const hand of inHand.values()) if (hand.needsInternet) hand.stop.blockNewCalls()
      void reconcile().then(() => log.warn('coordinator cancellation complete'))
    },
    setPaused(names) {
      paused = names
      void reconcile()
    },
    isConsuming: (process) => consumers.has(process),
    abort(run) {
      const hand = inHand.get(keyText(run))
      // The news of a cancellation may come when the run was resumed since, and is in hand again.
      if (hand !== undefined && hand.claim.lease.version < run.Version) hand.stop.stop('lost')
    },
    get stepsInHand() {
      return inHand.size
    },
    async [Symbol.asyncDispose]() {
      leaving.abort()
      for (const hand of inHand.values()) hand.stop.blockNewCalls()
      const stop = setTimeout(() => {
        for (const hand of inHand.values()) hand.stop.stop('leaving')
      }, leaveMs)
      const cut = setTimeout(() => gone.abort(), leaveMs + 2_000)
      await reconcile()
      clearTimeout(stop)
      clearTimeout(cut)
      clearInterval(renewing)
    },
  }
}

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

/** The claim of the next step, as the source has it after a transition that `continues`. */
function claimAfter(
  { lease, run, items }: Claim,
  next: RunState,
  { item }: Pick<Transition, 'item'>,
): Claim {
  const { StepName } = run
  const done: FinishedItem = {
    StepName,
    ResponseStatus: item?.response?.status ?? null,
    ResponseBody: item?.response?.body ?? null,
    Data: (item?.data ?? null) as FinishedItem['Data'],
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
    items: [...items, done],
  }
}

const used = (errorClass: string, error: string) =>
  ({ kind: 'failed', errorClass, error, response: null }) as const

/** A step that takes no notice of its signal is left behind after this long. */
const IGNORED_SIGNAL_MS = 500

/** The outcome in the light of why the step was stopped, if it was. */
function judged(
  outcome: StepOutcome | 'abandoned',
  reason: AbortReason | null,
): StepOutcome | null {
  if (reason === null) return outcome === 'abandoned' ? { kind: 'released' } : outcome
  const isDecided = outcome !== 'abandoned' && outcome.kind !== 'released' && !isThrown(outcome)
  // What an abandoned step did, and still does, nobody knows.
  const isInDoubt =
    outcome === 'abandoned' || (outcome.kind !== 'completed' && outcome.isInDoubt === true)
  switch (reason) {
    case 'lost':
      return null
    case 'leaving':
      if (isDecided) return outcome
      return outcome !== 'abandoned' && outcome.kind === 'released'
        ? outcome
        : { kind: 'released', isInDoubt }
    case 'timeout':
      return isDecided
        ? outcome
        : {
            kind: 'retry',
            errorClass: 'step_timeout',
            error: 'the step took longer than it may',
            response: null,
            retryAfterMs: null,
            isInDoubt,
          }
  }
}

// What a step throws when its signal aborts is no fault of the step.
const isThrown = (outcome: StepOutcome): boolean =>
  outcome.kind === 'retry' && outcome.errorClass === 'step_threw'
