/**
 * A model-based test: applies random sequences of operations (queue, claim, record, cancel, lost workers, …) to a real
 * source and to a small model of the transition rules, and compares the state of every run after each operation. The
 * script `test:faults` in package.json runs a hundred thousand sequences.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { createMemoryTransactionSource } from '../adapters/memory/transaction-source.ts'
import type { EventPlace } from './events.ts'
import { createPauseStore } from './pause.ts'
import type { RunDetail } from './run-detail.ts'
import type { Run } from './run.ts'
import { goesForward, isOver, isResumable, undoableStatuses } from './status.ts'
import {
  type Claim,
  type ClaimResult,
  LEASE_MS,
  type Lease,
  type ProcessOutline,
  SWEEP_CAP_MS,
  SWEEP_MS,
  type TransactionSource,
  WAITING_RECHECK_MS,
} from './transaction-source.ts'
import { LOST_BASE_MS, LOST_CAP_MS } from './transitions.ts'
import { advance, type StepOutcome } from './progress.ts'
import type { RetryPolicy } from './retry-policy.ts'
import { advanceUndo } from './undo.ts'

const SEQUENCES = process.env['TEST_FAULTS'] === undefined ? 4_000 : 100_000
const SEED = Number(process.env['TEST_SEED'] ?? 1)
/** The number of sequences after which the test opens a new source. A source keeps all its runs, so it becomes slow. */
const SEQUENCES_PER_SOURCE = 500

const steps = ['order', 'approved', 'report', 'csv'] as const
/** The place at which runs wait for an event. It has no attempts of its own. */
const EVENT = 'approved'
const EVENT_TIMEOUT_MS = LEASE_MS
const ids = ['a', 'b'] as const
/** The steps that have an `undo`. */
const undoable: readonly string[] = ['order', 'report']
const policy: RetryPolicy = { maxAttempts: 3, baseMs: 1_000, capMs: 60_000 }
const failure = { errorClass: 'http_503', error: 'busy', response: null }

const outcomes: Readonly<Record<string, StepOutcome>> = {
  completed: { kind: 'completed', response: { status: 200, body: '' }, data: 1, endsRun: false },
  endsRun: { kind: 'completed', response: null, data: null, endsRun: true },
  retryAtOnce: { kind: 'retry', ...failure, retryAfterMs: 0 },
  retryLater: { kind: 'retry', ...failure, retryAfterMs: 20_000 },
  failed: { kind: 'failed', ...failure },
  failedWithUndo: { kind: 'failed', ...failure, undo: true },
  waiting: { kind: 'waiting', credential: 'ACC-1', error: 'faulted' },
  inDoubt: { kind: 'retry', ...failure, retryAfterMs: 0, isInDoubt: true },
  later: { kind: 'later', delayMs: 20_000 },
  told429: { kind: 'held', ...failure, response: { status: 429, body: '' }, delayMs: 20_000 },
  held: { kind: 'held', ...failure, delayMs: 20_000 },
  released: { kind: 'released' },
  noResponse: { kind: 'released', noResponse: 'aborted', isInDoubt: true },
  skipped: { kind: 'skipped' },
  parked: { kind: 'parked', timeoutMs: EVENT_TIMEOUT_MS, ask: null },
  // The numbers of the rounds are counted by the test.
  repeated: { kind: 'repeated', response: null, round: { number: 0, state: null }, delayMs: 0 },
}
type OutcomeName = keyof typeof outcomes

/**
 * One random operation. `run` and `lease` are positions counted back from the newest run or lease, so that most random
 * values name an existing run or lease.
 */
type Happening =
  | {
      readonly do: 'queue'
      readonly id: string
      readonly data: number
      /** Whether the run is claimed when it is inserted. */
      readonly starts: boolean
    }
  | { readonly do: 'claim'; readonly run: number; readonly behind: number; readonly step: string }
  | {
      readonly do: 'record'
      readonly lease: number
      readonly outcome: OutcomeName
      readonly isInline: boolean
    }
  /** Claims a run and immediately records an outcome of its step. */
  | { readonly do: 'work'; readonly run: number; readonly outcome: OutcomeName }
  | { readonly do: 'renew'; readonly lease: number }
  | { readonly do: 'pass'; readonly ms: number }
  | { readonly do: 'adopt' | 'due' | 'wake' }
  | { readonly do: 'cancel' | 'resume' | 'undo'; readonly run: number }
  | { readonly do: 'replay'; readonly id: string; readonly fromStep: string | null }
  | { readonly do: 'refuse'; readonly run: number; readonly behind: number }
  | { readonly do: 'pause'; readonly isPaused: boolean }
  | { readonly do: 'signal'; readonly run: number; readonly data: number }
  /** The worker of a run that waits looks once more, or the sweeper looks at all runs that are due. */
  | {
      readonly do: 'look'
      readonly run: number | null
      readonly onTimeout: EventPlace['onTimeout']
    }

const anyId = fc.constantFrom(...ids)
const recent = fc.nat({ max: 3 })
/**
 * The version of the run minus the version in the message: usually 0, more for an outdated message, and -1 for a
 * message with a version that the run has not reached yet.
 */
const behind = fc.constantFrom(0, 0, 0, 0, 1, 2, -1)
const anything: fc.Arbitrary<Happening> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('queue'),
      id: anyId,
      data: fc.constantFrom(1, 1, 2),
      starts: fc.boolean(),
    }),
  },
  {
    weight: 8,
    // An empty step name in an operation stands for the due step of the run, because a random name would hardly ever
    // name the due step.
    arbitrary: fc.record({
      do: fc.constant('claim'),
      run: recent,
      behind,
      step: fc.constantFrom('', '', '', '', ...steps),
    }),
  },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant('record'),
      lease: recent,
      outcome: fc.constantFrom('completed', 'completed', 'completed', ...Object.keys(outcomes)),
      isInline: fc.boolean(),
    }),
  },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant('work'),
      run: fc.nat({ max: 1 }),
      outcome: fc.constantFrom('completed', 'completed', ...Object.keys(outcomes)),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('renew'), lease: recent }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('pass'),
      ms: fc.constantFrom(1, SWEEP_MS, LEASE_MS - 1, LEASE_MS, WAITING_RECHECK_MS),
    }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom('adopt', 'due', 'wake') }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('cancel', 'resume'), run: recent }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('undo'), run: recent }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('replay'),
      id: anyId,
      fromStep: fc.constantFrom(null, ...steps),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('refuse'), run: recent, behind }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('pause'), isPaused: fc.boolean() }) },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('signal'), run: recent, data: fc.constantFrom(1, 2) }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('look'),
      run: fc.constantFrom(null, 0, 1),
      onTimeout: fc.constantFrom('fail', 'undo', 'continue'),
    }),
  },
) as fc.Arbitrary<Happening>

/** The state of a run that the model predicts and the source must return. */
interface ModelRun {
  readonly id: string
  readonly replay: number
  data: number
  status: Run['Status']
  step: string
  version: number
  attempt: number
  items: Map<string, string>
  attempts: string[]
  /** The rounds of the steps that have called `repeat`. */
  rounds: Map<string, number>
  isInDoubt: boolean
  /** Whether the run waits for a credential. */
  waits: boolean
  /** Whether the last worker was lost. If the next one is lost too, the run waits before its next attempt. */
  isLost: boolean
  lease: { readonly version: number; readonly step: string; until: number } | null
  notBefore: number
}

const hasEffect = (item: string | undefined): boolean => item === 'Completed' || item === 'Copied'

const isFinished = (item: string | undefined): boolean =>
  hasEffect(item) || item === 'Skipped' || item === 'Undone'

/** Whether a run waits for the event. */
const isWaiting = ({ status, step, waits }: ModelRun): boolean =>
  status === 'Waiting' && step === EVENT && !waits

/** Returns what a worker may report of the place: it has no effect of its own, so most outcomes belong to steps only. */
const outcomeAt = (step: string, outcome: OutcomeName): OutcomeName => {
  if (step !== EVENT) return outcome === 'parked' ? 'completed' : outcome
  return ['skipped', 'failed', 'released'].includes(outcome) ? outcome : 'parked'
}

class Clock {
  now = Date.parse('2026-11-20T00:00:00Z')
}

/** Applies operations to the transactions of one process, in both the source and the model, and compares the two. */
class Model {
  readonly runs: ModelRun[] = []
  readonly leases: Lease[] = []
  /** What has become of events and waits. */
  readonly decided = new Set<string>()
  isPaused = false
  readonly #source: TransactionSource
  readonly #process: ProcessOutline
  readonly #clock: Clock
  /** The state of each completed run when the test first read it. Every later read must return the same state. */
  readonly #completed = new Map<ModelRun, RunDetail | null>()

  constructor(source: TransactionSource, name: string, clock: Clock) {
    this.#source = source
    this.#process = { name, steps, events: [EVENT] }
    this.#clock = clock
  }

  async apply(happening: Happening): Promise<void> {
    const source = this.#source
    const { name } = this.#process
    switch (happening.do) {
      case 'queue': {
        const { id, data, starts } = happening
        const transactions = [{ TransactionID: id, InitialData: data }]
        const start = starts ? { owner: 'worker', limit: 1 } : undefined
        const [result] = await source.queue(this.#process, transactions, undefined, start)
        const known = this.#find(id, 0)
        expect(result?.claim !== undefined).toBe(starts && known === undefined)
        if (known === undefined) {
          const run = this.#start(id, 0, steps[0], data)
          if (result?.claim !== undefined) this.#claimed(run, result.claim)
        }
        expect(result?.outcome).toBe(
          known === undefined ? 'queued' : known.data === happening.data ? 'exists' : 'conflict',
        )
        break
      }
      case 'claim': {
        const run = this.#recent(happening.run)
        if (run === undefined) return
        const step = happening.step || run.step
        const version = run.version - happening.behind
        const expected = this.#claimOf(run, version, step)
        const result = await source.claim({
          ...this.#key(run),
          version,
          step,
          isFirst: step === steps[0],
          // All claims have the same owner, so that only the version can distinguish a stale worker from the current
          // one.
          owner: 'worker',
        })
        expect(result.kind).toBe(expected)
        if (result.kind === 'claimed') {
          const isDone = hasEffect(run.items.get(run.step))
          expect(result.claim.round?.number).toBe(isDone ? undefined : run.rounds.get(run.step))
          if (run.lease !== null) this.#lose(run)
          this.#claimed(run, result.claim)
        }
        break
      }
      case 'record': {
        const lease = this.leases.at(-1 - happening.lease)
        if (lease === undefined) return
        const run = this.#find(lease.TransactionID, lease.ReplayID) as ModelRun
        const outcomeName = outcomeAt(lease.step, happening.outcome)
        const outcome = outcomes[outcomeName] as StepOutcome
        const held = run.lease?.version === lease.version
        // A worker computes the transition from the run as it was claimed, even if the run has changed since then.
        const found = await this.#get(run)
        const claimed = {
          ...found.run,
          StepName: lease.step,
          ...(held && { Attempt: run.attempt }),
        }
        const number = (run.rounds.get(lease.step) ?? 0) + 1
        const isUndo = run.status === 'Undoing'
        const ended = isUndo
          ? this.#outcomeOfUndo(run, outcome)
          : outcome.kind === 'repeated'
            ? { ...outcome, round: { number, state: number } }
            : outcome
        const { isInline } = happening
        const options = { steps, policy, random: 0.5, isInline, mayContinue: !isUndo }
        const transition = isUndo
          ? advanceUndo(claimed, ended, {
              ...options,
              items: found.items,
              undoable,
              events: [EVENT],
            })
          : advance(claimed, ended, options)
        const recorded = await source.record(lease, transition)
        expect(recorded === null).toBe(!held)
        if (!held) break
        if (isUndo) this.#settleUndo(run, ended, outcomeName)
        else this.#settle(run, outcomeName)
        run.isInDoubt = 'isInDoubt' in ended && ended.isInDoubt
        const continues = isUndo
          ? isInline && ended.kind === 'undone'
          : outcomeName === 'skipped' || (isInline && outcomeName === 'completed')
        if (continues && (run.status === 'Running' || run.status === 'Undoing'))
          this.#goOn(run, lease)
        break
      }
      case 'work': {
        const { run, outcome } = happening
        await this.apply({ do: 'claim', run, behind: 0, step: '' })
        await this.apply({ do: 'record', lease: 0, outcome, isInline: false })
        return
      }
      case 'renew': {
        const lease = this.leases.at(-1 - happening.lease)
        if (lease === undefined) return
        const run = this.#find(lease.TransactionID, lease.ReplayID) as ModelRun
        const isHeld = run.lease?.version === lease.version
        expect(await source.renew([lease])).toEqual(isHeld ? [] : [lease])
        if (isHeld && run.lease !== null) run.lease.until = this.#clock.now + LEASE_MS
        break
      }
      case 'pass':
        this.#clock.now += happening.ms
        return
      case 'due':
        for (const { TransactionID, ReplayID } of await source.due(this.#refs(), 10)) {
          const run = this.#find(TransactionID, ReplayID) as ModelRun
          expect(isOver(run.status) || this.#isLeased(run)).toBe(false)
          expect(run.notBefore).toBeLessThanOrEqual(this.#clock.now)
        }
        break
      case 'adopt':
        for (const { TransactionID, ReplayID } of await source.recoverExpiredLeases(10)) {
          const run = this.#find(TransactionID, ReplayID) as ModelRun
          expect(run.lease?.until).toBeLessThanOrEqual(this.#clock.now)
          const delayMs = Math.min(LOST_CAP_MS, LOST_BASE_MS * 2 ** Math.max(0, run.attempt - 2))
          if (run.isLost)
            Object.assign(run, {
              ...(run.status !== 'Undoing' && { status: 'Retrying' }),
              notBefore: this.#clock.now + delayMs,
            })
          this.#lose(run)
          run.lease = null
          run.version += 1
        }
        break
      case 'wake': {
        const waiting = this.runs.filter(({ waits }) => waits)
        expect(await source.wake('ACC-1', 10)).toHaveLength(waiting.length)
        for (const run of waiting)
          this.#move(run, {
            status: run.status === 'Undoing' ? 'Undoing' : 'Running',
            notBefore: this.#clock.now,
          })
        break
      }
      case 'cancel': {
        const run = this.#recent(happening.run)
        if (run === undefined) return
        const isAllowed = !isOver(run.status)
        await this.#expectDone(
          source.operate('cancel', { name }, run.id, run.replay, anAct),
          isAllowed,
        )
        if (isAllowed) {
          const isUndone = run.status === 'Undoing'
          this.#endWait(run, isUndone ? 'Failed' : 'Cancelled')
          this.#move(run, { status: isUndone ? 'UndoFailed' : 'Cancelled' })
        }
        break
      }
      case 'resume': {
        const run = this.#recent(happening.run)
        if (run === undefined) return
        const latest = this.runs.findLast(({ id }) => id === run.id)
        const isAllowed = isResumable(run.status) && run === latest
        await this.#expectDone(
          source.operate('resume', this.#process, run.id, run.replay, anAct),
          isAllowed,
        )
        const status = run.status === 'UndoFailed' ? 'Undoing' : 'Queued'
        if (isAllowed) this.#move(run, { status, attempt: 0, notBefore: this.#clock.now })
        break
      }
      case 'undo': {
        const run = this.#recent(happening.run)
        if (run === undefined) return
        const latest = this.runs.findLast(({ id }) => id === run.id)
        const isAllowed =
          (undoableStatuses as readonly string[]).includes(run.status) && run === latest
        await this.#expectDone(
          source.operate('undo', { name }, run.id, run.replay, anAct),
          isAllowed,
        )
        if (isAllowed)
          this.#move(run, { status: 'Undoing', attempt: 0, notBefore: this.#clock.now })
        break
      }
      case 'replay': {
        const { fromStep } = happening
        const all = this.runs.filter((run) => run.id === happening.id)
        const latest = all.at(-1)
        const copied = steps.slice(0, steps.indexOf((fromStep ?? steps[0]) as 'order'))
        const isDone = copied.every((step) =>
          ['Completed', 'Copied', 'Skipped'].includes(latest?.items.get(step) ?? ''),
        )
        const isAllowed =
          latest !== undefined && all.every(({ status }) => isOver(status)) && isDone
        await this.#expectDone(
          source.replay(this.#process, happening.id, { fromStep, latest: null }, anAct),
          isAllowed,
        )
        if (!isAllowed) break
        const run = this.#start(happening.id, latest.replay + 1, fromStep ?? steps[0], latest.data)
        for (const step of copied)
          run.items.set(step, latest.items.get(step) === 'Skipped' ? 'Skipped' : 'Copied')
        break
      }
      case 'refuse': {
        const run = this.#recent(happening.run)
        if (run === undefined) return
        const version = run.version - happening.behind
        const isAllowed = happening.behind === 0 && !isOver(run.status) && !this.#isLeased(run)
        const refused = await source.failRun(this.#key(run), version, 'unfit', 'why')
        expect(refused !== null).toBe(isAllowed)
        if (isAllowed) {
          this.#endWait(run, 'Failed')
          this.#move(run, { status: run.status === 'Undoing' ? 'UndoFailed' : 'Failed' })
        }
        break
      }
      case 'pause':
        await createPauseStore(source).setPaused(name, happening.isPaused, anAct)
        this.isPaused = happening.isPaused
        expect((await createPauseStore(source).paused()).has(name)).toBe(this.isPaused)
        return
      case 'signal': {
        const run = this.#recent(happening.run)
        if (run === undefined) return
        const event = { data: happening.data, eventId: null }
        const result = await source.signal(this.#place('fail'), run.id, run.replay, event, anAct)
        const known = run.items.get(EVENT)
        const isAccepted = goesForward(run.status) && known !== 'Received' && !isFinished(known)
        const hasMoved = isAccepted && isWaiting(run)
        expect(result).toMatchObject({ isAccepted, hasMoved })
        this.decided.add(hasMoved ? 'moved' : isAccepted ? 'early' : 'refused')
        if (!isAccepted) break
        run.items.set(EVENT, 'Received')
        if (hasMoved) this.#leaveEvent(run)
        break
      }
      case 'look': {
        const looked = happening.run === null ? null : this.#recent(happening.run)
        if (looked === undefined) return
        const found = await source.settleWaits(
          [this.#place(happening.onTimeout)],
          looked === null ? { limit: 10 } : this.#key(looked),
        )
        const settled = found.map(
          ({ TransactionID, ReplayID }) => this.#find(TransactionID, ReplayID) as ModelRun,
        )
        // The sweeper may find a run later, but never a run that must go on waiting.
        if (looked !== null) expect(settled).toEqual([looked].filter((run) => this.#isDecided(run)))
        for (const run of settled) {
          expect(this.#isDecided(run)).toBe(true)
          this.#endEvent(run, happening.onTimeout)
        }
        break
      }
    }
    for (const run of this.runs) await this.#compare(run)
  }

  /**
   * Expects that `due` returns every unfinished run, even if the run was already returned many times and was never
   * claimed. A run that has lost two workers in a row is due after lease recovery has released it, and after its delay.
   */
  async expectAllToComeUp(): Promise<void> {
    this.#clock.now += LEASE_MS
    for (const run of await this.#source.recoverExpiredLeases(10))
      expect(this.#find(run.TransactionID, run.ReplayID)?.lease).not.toBeNull()
    const waiting = new Set(this.runs.filter(({ status }) => !isOver(status)))
    this.#clock.now += LOST_CAP_MS + WAITING_RECHECK_MS + SWEEP_CAP_MS
    for (const run of await this.#source.settleWaits([this.#place('fail')], { limit: 10 }))
      waiting.delete(this.#find(run.TransactionID, run.ReplayID) as ModelRun)
    for (const { TransactionID, ReplayID } of await this.#source.due(this.#refs(), 10))
      waiting.delete(this.#find(TransactionID, ReplayID) as ModelRun)
    expect([...waiting]).toEqual([])
  }

  readonly #place = (onTimeout: EventPlace['onTimeout']): EventPlace => ({
    process: this.#process.name,
    place: EVENT,
    next: 'report',
    onTimeout,
  })

  /** Whether a run waits for an event that it has received, or that has not arrived in time. */
  #isDecided = (run: ModelRun): boolean =>
    isWaiting(run) && (run.items.get(EVENT) === 'Received' || run.notBefore <= this.#clock.now)

  #endEvent(run: ModelRun, onTimeout: EventPlace['onTimeout']): void {
    const isReceived = run.items.get(EVENT) === 'Received'
    this.decided.add(isReceived ? 'looked' : `timeout: ${onTimeout}`)
    if (isReceived || onTimeout === 'continue') return this.#leaveEvent(run)
    run.items.set(EVENT, 'Failed')
    if (onTimeout === 'fail') this.#move(run, { status: 'Failed' })
    else this.#move(run, { status: 'Undoing', attempt: 0, notBefore: this.#clock.now })
  }

  #leaveEvent(run: ModelRun): void {
    run.items.set(EVENT, 'Completed')
    this.#move(run, { status: 'Running', step: 'report', attempt: 0, notBefore: this.#clock.now })
  }

  /** Cancels all active runs, so that later sequences in the same source do not see them. */
  async end(): Promise<void> {
    for (const run of this.runs)
      if (!isOver(run.status))
        await this.#source
          .operate('cancel', this.#process, run.id, run.replay, anAct)
          .catch(() => {})
  }

  #settle(run: ModelRun, outcome: OutcomeName): void {
    const next = steps[steps.indexOf(run.step as 'order') + 1]
    const isLast = run.attempt >= policy.maxAttempts
    const { now } = this.#clock
    const step = run.step
    switch (outcome) {
      case 'parked':
        if (run.items.get(step) !== 'Received') run.items.set(step, 'Waiting')
        return this.#move(run, {
          status: 'Waiting',
          attempt: 0,
          notBefore: now + EVENT_TIMEOUT_MS,
        })
      case 'completed':
      case 'endsRun':
        run.items.set(step, 'Completed')
        run.attempts.push('completed')
        if (next === undefined || outcome === 'endsRun')
          return this.#move(run, { status: 'Completed' })
        return this.#move(run, { status: 'Running', step: next, attempt: 0, notBefore: now })
      case 'skipped':
        run.items.set(step, 'Skipped')
        if (next === undefined) return this.#move(run, { status: 'Completed' })
        return this.#move(run, { status: 'Running', step: next, attempt: 0, notBefore: now })
      case 'repeated':
        run.items.set(step, 'Running')
        run.rounds.set(step, (run.rounds.get(step) ?? 0) + 1)
        // A sequence has too few operations for more rounds of a step than those whose attempts are kept.
        run.attempts.push('repeated')
        return this.#move(run, { status: 'Running', attempt: 0, notBefore: now })
      case 'retryAtOnce':
      case 'retryLater':
      case 'inDoubt':
        run.items.set(step, isLast ? 'Failed' : 'Retrying')
        run.attempts.push('http_503')
        if (isLast) return this.#move(run, { status: 'Failed' })
        return this.#move(run, {
          status: 'Retrying',
          notBefore: now + (outcome === 'retryLater' ? 20_000 : 0),
        })
      case 'failed':
        // An event is kept.
        if (run.items.get(step) !== 'Received') run.items.set(step, 'Failed')
        run.attempts.push('http_503')
        return this.#move(run, { status: 'Failed' })
      case 'failedWithUndo':
        run.items.set(step, 'Failed')
        run.attempts.push('http_503')
        return this.#move(run, { status: 'Undoing', attempt: 0, notBefore: now })
      case 'waiting':
        run.items.set(step, 'Waiting')
        run.attempts.push('credential_faulted')
        return this.#move(run, {
          waits: true,
          status: 'Waiting',
          attempt: run.attempt - 1,
          notBefore: now + WAITING_RECHECK_MS,
        })
      case 'told429':
      case 'held':
      case 'later':
        if (outcome === 'told429') {
          run.items.set(step, 'Retrying')
          run.attempts.push('http_503')
        }
        return this.#move(run, {
          status: 'Retrying',
          attempt: run.attempt - 1,
          notBefore: now + 20_000,
        })
      default: {
        if (outcome === 'noResponse') {
          run.items.set(step, 'Retrying')
          run.attempts.push('no_answer')
        }
        const attempt = run.attempt - 1
        const resting = step === steps[0] ? 'Queued' : 'Running'
        this.#move(run, {
          status: attempt > 0 ? 'Retrying' : resting,
          attempt,
          notBefore: now,
          isLost: run.isLost && outcome === 'released',
        })
      }
    }
  }

  /** Returns what a worker reports that undoes the due step, if its call ends with `outcome`. */
  #outcomeOfUndo(run: ModelRun, outcome: StepOutcome): StepOutcome {
    const isDone = hasEffect(run.items.get(run.step))
    const isAsked = !isDone && run.isInDoubt
    if (isDone ? !undoable.includes(run.step) : !isAsked) return { kind: 'left' }
    if (run.step === EVENT) return { kind: 'left' }
    if (outcome.kind === 'skipped' || outcome.kind === 'repeated') return { kind: 'left' }
    if (outcome.kind !== 'completed' || isAsked) return outcome
    return { kind: 'undone', response: null }
  }

  #settleUndo(run: ModelRun, outcome: StepOutcome, name: OutcomeName): void {
    const { now } = this.#clock
    const { step } = run
    if (outcome.kind === 'completed') {
      run.items.set(step, 'Completed')
      run.attempts.push('completed')
      return this.#move(run, { attempt: 0, notBefore: now })
    }
    if (outcome.kind === 'undone' || outcome.kind === 'left') {
      if (outcome.kind === 'undone') {
        run.items.set(step, 'Undone')
        run.attempts.push('undone')
      }
      const next = steps.findLast((one) => undoable.includes(one) && hasEffect(run.items.get(one)))
      return next === undefined
        ? this.#move(run, { status: 'Undone' })
        : this.#move(run, { step: next, attempt: 0, notBefore: now })
    }
    // Every other outcome leaves the item as it was.
    const items = new Map(run.items)
    this.#settle(run, name === 'failedWithUndo' ? 'failed' : name)
    Object.assign(run, { items, status: run.status === 'Failed' ? 'UndoFailed' : 'Undoing' })
  }

  /** Models a worker that keeps its lease and continues with the next step. */
  #goOn(run: ModelRun, lease: Lease): void {
    run.attempt = 1
    run.lease = { version: run.version, step: run.step, until: this.#clock.now + LEASE_MS }
    this.leases.push({ ...lease, step: run.step, version: run.version, attempt: 1 })
  }

  #claimed(run: ModelRun, { run: claimed, lease }: Claim): void {
    expect(claimed.InDoubt).toBe(run.isInDoubt)
    run.version += 1
    run.attempt += 1
    if (run.status !== 'Undoing') run.status = 'Running'
    run.waits = false
    run.lease = { version: run.version, step: run.step, until: this.#clock.now + LEASE_MS }
    this.leases.push(lease)
  }

  /** Models the loss of a worker during a step: the attempt is stored as `in_doubt`. */
  #lose(run: ModelRun): void {
    run.attempts.push('in_doubt')
    run.isInDoubt ||= this.#leavesDoubt(run)
    run.isLost = true
  }

  /** An undo at a step without a finished item can only have called `confirm`. */
  #leavesDoubt = ({ status, items, step }: ModelRun): boolean =>
    status !== 'Undoing' || hasEffect(items.get(step))

  /** Applies a transition to the model of a run. Every transition adds 1 to the version and ends the lease. */
  /** The item at which a run has waited ends with the run. */
  #endWait(run: ModelRun, status: string): void {
    for (const [step, item] of run.items) if (item === 'Waiting') run.items.set(step, status)
  }

  #move(run: ModelRun, change: Partial<ModelRun>): void {
    const isInDoubt = run.isInDoubt || (run.lease !== null && this.#leavesDoubt(run))
    Object.assign(run, { isLost: false, waits: false }, change, {
      version: run.version + 1,
      lease: null,
      isInDoubt,
    })
  }

  #claimOf(run: ModelRun, version: number, step: string): ClaimResult['kind'] {
    const isTakeover = run.lease !== null && version === run.version - 1
    if (isOver(run.status) || this.#isLeased(run) || step !== run.step) return 'stale'
    if (version !== run.version && !isTakeover) return 'stale'
    if (run.lease !== null && run.isLost) return 'stale'
    if (run.notBefore <= this.#clock.now) return 'claimed'
    return run.waits || isWaiting(run) ? 'stale' : 'early'
  }

  /** Checks that the source returns what the model predicts, and that completed runs do not change. */
  async #compare(run: ModelRun): Promise<void> {
    const found = await this.#get(run)
    const { run: stored, items, attempts } = found
    expect({
      status: stored.Status,
      step: stored.StepName,
      version: stored.Version,
      attempt: stored.Attempt,
      isInDoubt: stored.InDoubt,
      items: new Map(items.map(({ StepName, Status }) => [StepName, Status])),
      attempts: attempts.map(({ Outcome }) => Outcome),
      rounds: new Map(items.flatMap(({ StepName, Round }) => (Round ? [[StepName, Round]] : []))),
    }).toEqual({
      status: run.status,
      step: run.step,
      version: run.version,
      attempt: run.attempt,
      isInDoubt: run.isInDoubt,
      items: run.items,
      attempts: run.attempts,
      rounds: run.rounds,
    })
    if (run.status !== 'Completed') return
    const first = this.#completed.get(run)
    if (first === undefined) this.#completed.set(run, found)
    else expect(found).toEqual(first)
  }

  async #get(run: ModelRun): Promise<RunDetail> {
    const found = await this.#source.get(this.#process.name, run.id, run.replay)
    if (found === null) throw new Error(`run ${run.replay} of ${run.id} is lost`)
    return found
  }

  #start(id: string, replay: number, step: string, data: number): ModelRun {
    // A new run must have a new ReplayID. Otherwise it would replace another run.
    expect(this.#find(id, replay)).toBeUndefined()
    const run: ModelRun = {
      id,
      replay,
      data,
      status: 'Queued',
      step,
      version: 0,
      attempt: 0,
      items: new Map(),
      attempts: [],
      rounds: new Map(),
      isInDoubt: false,
      waits: false,
      isLost: false,
      lease: null,
      notBefore: this.#clock.now,
    }
    this.runs.push(run)
    return run
  }

  async #expectDone(work: Promise<unknown>, isAllowed: boolean): Promise<void> {
    const isDone = await work.then(
      () => true,
      () => false,
    )
    expect(isDone).toBe(isAllowed)
  }

  readonly #refs = () =>
    steps.map((step, index) => ({ process: this.#process.name, step, isFirst: index === 0 }))
  readonly #recent = (index: number) => this.runs.at(-1 - index)
  readonly #find = (id: string, replay: number) =>
    this.runs.find((run) => run.id === id && run.replay === replay)
  readonly #isLeased = ({ lease }: ModelRun) => lease !== null && lease.until > this.#clock.now
  readonly #key = ({ id: TransactionID, replay: ReplayID }: ModelRun) => ({
    Process: this.#process.name,
    TransactionID,
    ReplayID,
  })
}

/**
 * A journal file that discards all writes, because disk writes would slow this test down. Other tests cover durability.
 */
const nowhere = async () => ({
  appendFile: async () => {},
  datasync: async () => {},
  sync: async () => {},
  truncate: async () => {},
  close: async () => {},
})

describe('a transaction source under random operations', () => {
  it(
    'after each operation of a random sequence, a transaction source has the state that a model predicts',
    async ({ annotate }) => {
      const happened = new Map<string, number>()
      const decided = new Set<string>()
      const clock = new Clock()
      let sequences = 0
      for (let batch = 0; batch * SEQUENCES_PER_SOURCE < SEQUENCES; batch += 1) {
        const folder = await mkdtemp(join(tmpdir(), 'coordinator-'))
        const source = await createMemoryTransactionSource(folder, {
          now: () => clock.now,
          openFile: nowhere,
        })
        try {
          await fc.assert(
            fc.asyncProperty(fc.array(anything, { minLength: 15, maxLength: 45 }), async (all) => {
              sequences += 1
              const model = new Model(source, `Process${sequences}`, clock)
              try {
                for (const one of all) await model.apply(one)
                for (const { status } of model.runs)
                  happened.set(status, (happened.get(status) ?? 0) + 1)
                for (const one of model.decided) decided.add(one)
                await model.expectAllToComeUp()
              } finally {
                await model.end()
              }
            }),
            { numRuns: Math.min(SEQUENCES, SEQUENCES_PER_SOURCE), seed: SEED + batch },
          )
        } finally {
          await source[Symbol.asyncDispose]()
          await rm(folder, { recursive: true })
        }
      }
      // The random sequences must have reached every status; otherwise they would prove little.
      expect([...happened.keys()].toSorted()).toEqual([
        'Cancelled',
        'Completed',
        'Failed',
        'Queued',
        'Retrying',
        'Running',
        'UndoFailed',
        'Undoing',
        'Undone',
        'Waiting',
      ])
      expect([...decided].toSorted()).toEqual([
        'early',
        'looked',
        'moved',
        'refused',
        'timeout: continue',
        'timeout: fail',
        'timeout: undo',
      ])
      const ends = [...happened].map(([status, count]) => `${count} ${status}`).join(', ')
      await annotate(
        `${sequences} random sequences, 0 divergences; runs ended ${ends}`,
        'measurement',
      )
    },
    SEQUENCES * 20,
  )
})
