/**
 * The transitions of a run as pure functions: each returns the next state for a current state and a time. The memory
 * source stores what they return. The PostgreSQL source implements the same rules a second time in SQL, one file per
 * statement, because it must decide a transition while it holds the lock of the row. The contracts (`*.contract.ts`) of
 * this folder test both sources.
 *
 * `progress.ts` derives a transition from the outcome of a step. The rules of undo, families and slots are in `undo.ts`,
 * `family-transitions.ts` and `slot-transitions.ts`.
 */
import type { NotBefore } from '@integration-host/shared/contracts/transaction'
import { backoffMs } from '@integration-host/shared/process/backoff'
import type { StepCall, Transition } from './progress.ts'
import {
  earlierStepNotCompleted,
  notActive,
  notInDoubt,
  notResumable,
  notRetryable,
  notUndoable,
  requireData,
  stepInFlight,
  stepUnknown,
} from './errors.ts'
import {
  type Attempt,
  hasEffect,
  idempotencyKey,
  isFinished,
  type Item,
  KEPT_ROUNDS,
  REPEATED,
} from './item.ts'
import type { RetentionPolicy } from './retention.ts'
import { hasInitialData, type Run, type RunKey, runKey } from './run.ts'
import type { Settlement } from './operator-actions.ts'
import { isWaitingForSlot } from './slots.ts'
import { deadlineOfStart, isDelayed, notBeforeMs } from './start-time.ts'
import {
  failedStatus,
  isOver,
  isResumable,
  isRetryable,
  isUndo,
  isWaitingAtPlace,
  isWaitingForFamily,
  undoableStatuses,
  WAITS_FOR_CHILDREN,
  WAITS_FOR_RESUME,
} from './status.ts'
import {
  type ClaimRequest,
  type ClaimResult,
  type Lease,
  type LeaseRenewal,
  type ProcessOutline,
  type ReplayRequest,
  type RunTerms,
  type StepRef,
  SWEEP_CAP_MS,
} from './transaction-source.ts'

/**
 * A run together with members that only the transaction source uses, such as its lease and its sweep time. It is
 * immutable: a transition returns a new StoredRun.
 */
export interface StoredRun {
  /** The run itself. The member is called `header` because the files of the memory source use that name. */
  readonly header: Run
  readonly items: readonly Item[]
  readonly attempts: readonly Attempt[]
  readonly lease: {
    readonly owner: string
    readonly until: number
    readonly startedAt: string
  } | null
  /** The position of the run in the list of its parent, if it counts as a child of it. */
  readonly item?: number
  /** Set while the run has a slot of its process, or waits for one. */
  readonly slot?: { readonly key: string; readonly isHeld: boolean }
  /** The time until which a debounced run absorbs requests, epoch ms. */
  readonly absorbsUntil?: number
  /** The service key that has queued a delayed run, if its share limits it (`Caller.shareOf`). */
  readonly delayedBy?: string
  /** The time at which the sweeper publishes the run again, epoch ms. */
  readonly nextSweepAt: number
  /** The number of times that the sweeper has published the run since its last transition. */
  readonly sweepCount: number
}

export interface Times {
  /** Epoch ms. */
  readonly now: number
  readonly sweepMs: number
  readonly leaseMs: number
}

const isLeased = ({ lease }: StoredRun, now: number): boolean => lease !== null && lease.until > now

/** Whether the sweeper should publish the run: its sweep time has passed, and the run has no live lease. */
export const isOverdue = (stored: StoredRun, now: number): boolean =>
  stored.nextSweepAt <= now && !isLeased(stored, now)

/** Whether a run is at this step. A row that was inserted without a step name is at the first step. */
export const isAtStep = (
  { Process, StepName }: Run,
  { process, step, isFirst }: StepRef,
): boolean => Process === process && (StepName === step || (isFirst && StepName === ''))

/**
 * The error class and the error text of a run whose deadline has passed. The last error of the run is appended to the
 * text.
 */
export const DEADLINE_EXCEEDED = 'deadline_exceeded'
export const PAST_DEADLINE =
  'the run has not ended by its deadline; a resume gives it the whole time again'
export const LAST_ERROR = '; its last error: '

const iso = (at: number): string => new Date(at).toISOString()

const due = (now: number) => ({
  NextAttemptAt: iso(now),
  LastError: null,
  ErrorClass: null,
  WaitingFor: null,
})

const deadline = ({ deadlineMs = null }: RunTerms, now: number) => ({
  DeadlineAt: deadlineMs === null ? null : iso(now + deadlineMs),
})

/** A run that is being undone has no deadline. */
const isPastDeadline = ({ Status, DeadlineAt }: Run, now: number): boolean =>
  Status !== 'Undoing' && DeadlineAt !== null && Date.parse(DeadlineAt) <= now

const ended = (now: number) => ({ NextAttemptAt: null, WaitingFor: null, CompletedAt: iso(now) })

/**
 * Whether a lease that ends without a recorded outcome leaves its step in doubt. An undo at a step without a finished item
 * can only have called `confirm` (rule U3 in undo.ts).
 */
const leavesDoubt = ({ header, lease, items }: StoredRun): boolean =>
  lease !== null &&
  (header.Status !== 'Undoing' ||
    items.some((item) => item.StepName === header.StepName && hasEffect(item)))

/**
 * Returns the run after a change: with the next version, and without a lease. If a lease ends here without a recorded
 * outcome, the step is marked as in doubt.
 */
export const next = (
  stored: StoredRun,
  change: Partial<Run>,
  { now, sweepMs }: Times,
  sweepInMs = sweepMs,
): StoredRun => {
  const { slot, ...rest } = stored
  const header = {
    ...stored.header,
    ...change,
    Version: stored.header.Version + 1,
    InDoubt: change.InDoubt ?? (stored.header.InDoubt || leavesDoubt(stored)),
    UpdatedAt: iso(now),
  }
  return {
    ...rest,
    header,
    lease: null,
    nextSweepAt: now + sweepInMs,
    sweepCount: 0,
    ...(slot?.isHeld === true && header.Status === 'Running' && { slot }),
  }
}

const requestOf = (
  call: StepCall | undefined,
): Pick<Attempt, 'Request' | 'TraceId' | 'ResponseId'> => ({
  Request: call === undefined ? null : { Method: call.method, Url: call.url },
  TraceId: call?.traceId ?? null,
  ResponseId: call?.responseId ?? null,
})

/** Returns the recorded attempts. If the worker of the run was lost, its attempt in flight is added as `in_doubt`. */
const withLostAttempt = ({ header, lease, attempts }: StoredRun): readonly Attempt[] =>
  lease === null
    ? attempts
    : [
        ...attempts,
        {
          StepName: header.StepName,
          Attempt: header.Attempt,
          Outcome: 'in_doubt',
          ResponseStatus: null,
          Error: null,
          ...requestOf(undefined),
          StartedAt: lease.startedAt,
          FinishedAt: null,
        },
      ]

/**
 * Returns a new run that is due at `step`, at once or at `NotBefore`. The time limit of the run begins when the run is
 * due.
 */
export const queued = (
  key: RunKey,
  step: string,
  {
    InitialData,
    Realm = null,
    Tags = null,
    Priority = 'normal',
    ConcurrencyKey = null,
    notBefore,
    debounceKey = null,
    version = null,
    deadlineMs = null,
  }: Pick<Run, 'InitialData'> &
    Partial<Pick<Run, 'Realm' | 'Tags' | 'Priority' | 'ConcurrencyKey'>> &
    RunTerms & { readonly notBefore?: NotBefore | undefined; readonly debounceKey?: string | null },
  { now, sweepMs }: Times,
): StoredRun => {
  const earliest = notBeforeMs(notBefore, now)
  const start = Math.max(now, earliest ?? now)
  return {
    header: {
      ...runKey(key),
      Status: 'Queued',
      StepName: step,
      InitialData,
      Realm,
      Version: 0,
      Attempt: 0,
      ...due(start),
      InDoubt: false,
      Priority,
      DefinitionVersion: version,
      ...deadline({ deadlineMs }, start),
      NotBefore: earliest === null ? null : iso(earliest),
      DebounceKey: debounceKey,
      Absorbed: 0,
      CreatedAt: iso(now),
      UpdatedAt: iso(now),
      CompletedAt: null,
      Tags,
      ConcurrencyKey,
      InputChanged: false,
      ErasedAt: null,
      PurgedAt: null,
    },
    items: [],
    attempts: [],
    lease: null,
    nextSweepAt: start + sweepMs,
    sweepCount: 0,
  }
}

/**
 * Returns the run under a lease for the request, or the reason why the claim is rejected. A message can claim the
 * version that it names. If a worker has claimed this version and was lost, the version of the run is now higher by
 * one. After the lease of this worker has expired, the redelivered message can claim this higher version, unless the
 * run has lost another worker before: lease recovery then decides how long the run waits.
 */
export function claimed(
  stored: StoredRun,
  { version, step, isFirst, owner }: Omit<ClaimRequest, keyof RunKey>,
  times: Times,
):
  | { readonly kind: 'claimed'; readonly stored: StoredRun }
  | Exclude<ClaimResult, { kind: 'claimed' }> {
  const { header, lease } = stored
  const { now, leaseMs } = times
  const isTakeover = header.Version === version + 1 && lease !== null
  if (isOver(header.Status) || isLeased(stored, now)) return { kind: 'stale' }
  if (isLostAgain(stored)) return { kind: 'stale' }
  if (isPastDeadline(header, now)) return { kind: 'stale' }
  if (!isAtStep(header, { process: header.Process, step, isFirst })) return { kind: 'stale' }
  if (header.Version !== version && !isTakeover) return { kind: 'stale' }
  const delayMs = Date.parse(header.NextAttemptAt ?? '') - now
  if (delayMs > 0)
    return header.WaitingFor !== null ? { kind: 'stale' } : { kind: 'early', delayMs, version }
  const change = {
    Status: header.Status === 'Undoing' ? header.Status : 'Running',
    StepName: step,
    Attempt: header.Attempt + 1,
    WaitingFor: null,
    ...(lease !== null && { ErrorClass: WORKER_LOST, LastError: WORKER_WAS_LOST }),
  } as const
  return {
    kind: 'claimed',
    stored: {
      ...next(stored, change, times, leaseMs),
      attempts: withLostAttempt(stored),
      lease: { owner, until: now + leaseMs, startedAt: iso(now) },
    },
  }
}

export const holdsLease = ({ header, lease }: StoredRun, { owner, version }: Lease): boolean =>
  lease?.owner === owner && header.Version === version

/** Returns the run with the outcome of its leased step recorded; `null` if the lease was lost. */
export function recorded(
  stored: StoredRun,
  lease: Lease,
  transition: Transition,
  times: Times,
): StoredRun | null {
  if (!holdsLease(stored, lease)) return null
  const { now, sweepMs, leaseMs } = times
  const { item, delayMs, status, continues = false, isUndo: isOfUndo = false } = transition
  const isParked = item?.ask !== undefined
  const isSkipped = item?.status === 'Skipped'
  const round = item?.round
  const known = stored.items.find(({ StepName }) => StepName === lease.step)
  const undoneItem: Item[] =
    isOfUndo && item?.status === 'Undone' && known !== undefined
      ? [{ ...known, Status: 'Undone', FinishedAt: iso(now) }]
      : []
  // Only the end of the place replaces an event that was received early.
  const keepsEvent = known?.Status === 'Received' && item?.status !== 'Completed' && !isSkipped
  const finished = {
    StepName: lease.step,
    Attempt: isSkipped ? 0 : stored.header.Attempt,
    ResponseStatus: item?.response?.status ?? null,
    Error: item?.error ?? null,
    StartedAt: stored.lease?.startedAt ?? iso(now),
    FinishedAt: iso(now),
  }
  const change = {
    Status: status,
    StepName: transition.stepName,
    Attempt: transition.attempt,
    WaitingFor: transition.waitingFor,
    LastError: transition.lastError,
    ErrorClass: transition.errorClass,
    InDoubt: transition.isInDoubt,
    NextAttemptAt: isOver(status) || delayMs === null ? null : iso(now + delayMs),
    CompletedAt: isOver(status) ? iso(now) : null,
  }
  const dueInMs = waitsForChildren(transition) ? PARENT_RECHECK_MS : isParked ? 0 : (delayMs ?? 0)
  return {
    ...next(stored, change, times, continues ? leaseMs : dueInMs + sweepMs),
    ...(continues && { lease: { owner: lease.owner, until: now + leaseMs, startedAt: iso(now) } }),
    ...(undoneItem.length > 0 && {
      items: [...stored.items.filter((other) => other !== known), ...undoneItem],
    }),
    ...(item !== null &&
      !isOfUndo &&
      !keepsEvent && {
        items: [
          ...stored.items.filter((other) => other !== known),
          {
            ...known,
            ...finished,
            ...(isParked && { Attempt: 0, FinishedAt: null }),
            Status: item.status,
            IdempotencyKey: idempotencyKey(lease, lease.step, round?.number ?? lease.round),
            ResponseBody: item.response?.body ?? null,
            Data: item.data as Item['Data'],
            ...(isParked && item.ask !== null && { Ask: item.ask as Item['Ask'] }),
            ...(round !== undefined && {
              Round: round.number,
              State: round.state as Item['State'],
            }),
            ...(item.report !== undefined && { Report: item.report as Item['Report'] }),
          },
        ],
      }),
    ...(item !== null &&
      !isParked &&
      !isSkipped && {
        attempts: [
          ...withoutOldRounds(stored.attempts, round === undefined ? null : lease.step),
          {
            ...finished,
            ...requestOf(transition.call),
            Outcome: outcomeOf(transition),
          },
        ],
      }),
  }
}

/** Whether the run waits for its children after the transition. The sweeper looks at its family instead of the run. */
export const waitsForChildren = ({ waitingFor }: Transition): boolean =>
  waitingFor?.startsWith(WAITS_FOR_CHILDREN) === true

/**
 * The longest time after which the sweeper looks at a run that waits for its children. Without it, nothing would find a run
 * whose process no longer has the place.
 */
export const PARENT_RECHECK_MS = 86_400_000

/** Returns the outcome with which the attempt of a transition is stored. */
export const outcomeOf = ({ item, errorClass }: Transition): string => {
  if (item?.status === 'Undone') return 'undone'
  if (item?.round !== undefined) return REPEATED
  return item?.status === 'Completed' ? 'completed' : (errorClass ?? 'completed')
}

/**
 * Returns the attempts without those that ended rounds of `step` which no longer belong to the last rounds. Another
 * attempt with which a round ends will be added.
 */
function withoutOldRounds(attempts: readonly Attempt[], step: string | null): readonly Attempt[] {
  const ends = attempts.filter(({ StepName, Outcome }) => StepName === step && Outcome === REPEATED)
  const old = new Set(ends.slice(0, Math.max(0, ends.length - KEPT_ROUNDS + 1)))
  return old.size === 0 ? attempts : attempts.filter((attempt) => !old.has(attempt))
}

/**
 * Returns the run with its lease extended; `null` if the lease was lost. The version does not change, because a
 * renewal is not a transition.
 */
export function renewed(
  stored: StoredRun,
  lease: LeaseRenewal,
  { now, leaseMs }: Times,
): StoredRun | null {
  if (!holdsLease(stored, lease)) return null
  const until = now + leaseMs
  const startedAt = stored.lease?.startedAt ?? iso(now)
  const renewal = { lease: { owner: lease.owner, until, startedAt }, nextSweepAt: until }
  const { report, step: StepName, attempt: Attempt } = lease
  if (report === undefined) return { ...stored, ...renewal }
  const Report = report as Item['Report']
  const known = stored.items.find((item) => item.StepName === StepName)
  const begun: Item = {
    StepName,
    Status: 'Running',
    Attempt,
    IdempotencyKey: idempotencyKey(lease, StepName, lease.round),
    ResponseStatus: null,
    ResponseBody: null,
    Data: null,
    Error: null,
    StartedAt: startedAt,
    FinishedAt: null,
  }
  const items = [...stored.items.filter((item) => item !== known), { ...begun, ...known, Report }]
  return { ...stored, ...renewal, items }
}

/**
 * Returns the run after a sweep has published it: the interval until the next sweep is doubled, and the version stays
 * the same.
 */
export function swept(stored: StoredRun, { now, sweepMs }: Times): StoredRun {
  const { sweepCount } = stored
  const spacingMs = backoffMs(sweepCount + 1, { baseMs: sweepMs, capMs: SWEEP_CAP_MS, random: 1 })
  // A run is swept only after the time at which it is due. An earlier message would wait in the delay queue together
  // with the first message.
  const dueAt = Math.max(now, Date.parse(stored.header.NextAttemptAt ?? iso(now)))
  return { ...stored, nextSweepAt: dueAt + spacingMs, sweepCount: sweepCount + 1 }
}

/**
 * The error class of a run whose worker was lost. A run that has this class when it loses another worker may be what
 * ends the workers.
 */
export const WORKER_LOST = 'worker_lost'
export const WORKER_WAS_LOST = 'the worker was lost while it ran this step'
/** The error class of a run whose undo was cancelled. */
export const UNDO_CANCELLED = 'undo_cancelled'

/**
 * Whether the run has the lease of a lost worker, and has lost another worker directly before. Such a run is neither
 * swept nor claimed until lease recovery has released it, because lease recovery decides how long the run waits.
 */
export const isLostAgain = ({ lease, header }: StoredRun): boolean =>
  lease !== null && header.ErrorClass === WORKER_LOST

/** The milliseconds that a run waits after it has lost the second worker in a row. They double with each attempt. */
export const LOST_BASE_MS = 30_000
export const LOST_CAP_MS = 900_000

/**
 * Returns the run after its lease has expired: its step is due again, or later if the run has lost two or more workers
 * in a row. Returns `null` if there is no expired lease.
 */
export function recovered(stored: StoredRun, times: Times): StoredRun | null {
  const { lease, header } = stored
  if (lease === null || !isOverdue(stored, times.now)) return null
  const lost = { ErrorClass: WORKER_LOST, LastError: WORKER_WAS_LOST }
  const attempts = withLostAttempt(stored)
  if (header.ErrorClass !== WORKER_LOST) return { ...next(stored, lost, times), attempts }
  const delayMs = backoffMs(Math.max(1, header.Attempt - 1), {
    baseMs: LOST_BASE_MS,
    capMs: LOST_CAP_MS,
    random: 1,
  })
  const Status = header.Status === 'Undoing' ? header.Status : 'Retrying'
  const later = { ...lost, Status, NextAttemptAt: iso(times.now + delayMs) } as const
  return { ...next(stored, later, times, delayMs + times.sweepMs), attempts }
}

/** Returns a run that was cancelled or has failed, without a waiting item: the item has ended with the run. */
function withoutWait(stored: StoredRun): StoredRun {
  const { Status: status, ErrorClass, UpdatedAt: FinishedAt } = stored.header
  const end = status === 'Cancelled' ? { Status: status } : { Status: 'Failed', Error: ErrorClass }
  return stored.items.some(({ Status }) => Status === 'Waiting')
    ? {
        ...stored,
        items: stored.items.map((item) =>
          item.Status === 'Waiting' ? ({ ...item, ...end, FinishedAt } as Item) : item,
        ),
      }
    : stored
}

/**
 * Fails a run that can never continue, or begins its undo at the step `undoAt`. Returns `null` if the run has changed since
 * `version`, has ended, or has a live lease.
 */
export function failed(
  stored: StoredRun,
  {
    version,
    errorClass,
    error,
    undoAt,
  }: {
    version: number
    errorClass: string
    error: string
    undoAt?: string | undefined
  },
  times: Times,
): StoredRun | null {
  const { Version, Status, StepName } = stored.header
  if (Version !== version || isOver(Status) || isLeased(stored, times.now)) return null
  const failure = { ErrorClass: errorClass, LastError: error }
  const isOtherInDoubt = StepName !== undoAt && (stored.header.InDoubt || leavesDoubt(stored))
  if (undoAt !== undefined && !isOtherInDoubt) {
    const reason = Status === 'Undoing' ? {} : failure
    return withoutWait(next(stored, { ...undoing(times.now), ...reason, StepName: undoAt }, times))
  }
  const status = undoAt === undefined ? failedStatus(stored.header) : 'UndoFailed'
  return withoutWait(next(stored, { ...ended(times.now), ...failure, Status: status }, times))
}

/**
 * Returns the run after it has failed at its deadline, or begins to be undone then. Returns `null` if no deadline has passed, or if the run has
 * ended. Also returns `null` for a leased run, because the outcome of its attempt must be recorded first.
 */
export function pastDeadline(
  stored: StoredRun,
  undoneProcesses: readonly string[],
  times: Times,
): StoredRun | null {
  const { header, lease } = stored
  if (isOver(header.Status) || lease !== null || !isPastDeadline(header, times.now)) return null
  const before = header.LastError === null ? '' : `${LAST_ERROR}${header.LastError}`
  const failure = { ErrorClass: DEADLINE_EXCEEDED, LastError: `${PAST_DEADLINE}${before}` }
  return withoutWait(
    undoneProcesses.includes(header.Process)
      ? next(stored, { ...undoing(times.now), ...failure }, times)
      : next(stored, { ...ended(times.now), ...failure, Status: 'Failed' }, times),
  )
}

/** The members of a run whose undo is due. The reason of the undo is kept as its last error. */
export const undoing = (now: number) =>
  ({
    Status: 'Undoing',
    Attempt: 0,
    NextAttemptAt: iso(now),
    WaitingFor: null,
    CompletedAt: null,
  }) as const

/** @throws {IntegrationError} `transaction_not_undoable` if the run is active, or its undo has begun. */
export function undone(stored: StoredRun, times: Times): StoredRun {
  const { header } = stored
  requireData(header)
  if (!(undoableStatuses as readonly string[]).includes(header.Status)) throw notUndoable()
  return next(stored, undoing(times.now), times)
}

/** @throws {IntegrationError} `transaction_not_resumable` if the run is active or completed. */
export function resumed(stored: StoredRun, times: Times, terms: RunTerms): StoredRun {
  requireData(stored.header)
  if (!isResumable(stored.header.Status)) throw notResumable()
  const { now } = times
  if (stored.header.Status === 'UndoFailed')
    return next(stored, { ...due(now), ...undoing(now) }, times)
  const change = {
    ...due(now),
    ...deadline(terms, now),
    NotBefore: null,
    Attempt: 0,
    CompletedAt: null,
  }
  return next(stored, { ...change, Status: 'Queued' }, times)
}

/** @throws {IntegrationError} `transaction_not_active` if the run has ended. */
export function cancelled(stored: StoredRun, times: Times): StoredRun {
  if (isOver(stored.header.Status)) throw notActive()
  const change =
    stored.header.Status === 'Undoing'
      ? ({ Status: 'UndoFailed', ErrorClass: UNDO_CANCELLED, LastError: null } as const)
      : ({ Status: 'Cancelled' } as const)
  return withoutWait(next(stored, { ...ended(times.now), ...change }, times))
}

/** The members of a run without its data. */
const NO_DATA = {
  InitialData: null,
  Tags: null,
  ConcurrencyKey: null,
  DebounceKey: null,
  LastError: null,
} as const

/** Returns an ended run without its data. The version does not change, because erasing is not a transition. */
export const erased = (stored: StoredRun, now: number): StoredRun => ({
  ...stored,
  header: {
    ...stored.header,
    ...NO_DATA,
    ErasedAt: iso(now),
  },
  items: stored.items.map(
    ({ State: _state, Report: _report, Ask: _ask, Sender: _sender, ...item }) => ({
      ...item,
      ResponseBody: null,
      Data: null,
      Error: null,
    }),
  ),
  attempts: stored.attempts.map((attempt) => ({ ...attempt, Error: null, Request: null })),
})

/**
 * Makes a waiting run due at once: a run that waits for its next attempt, for its start time, or for its credential. A
 * run that waits for a slot keeps the time at which it became due, because slots are assigned in the order of these
 * times.
 *
 * @throws {IntegrationError} `transaction_not_retryable`
 */
export function retried(stored: StoredRun, times: Times): StoredRun {
  const { header } = stored
  const { now } = times
  if (isDelayed(header, now))
    return next(stored, { ...due(now), ...deadlineOfStart(header, now), NotBefore: null }, times)
  if (isUndoWaiting(stored, now)) return next(stored, due(now), times)
  if (!isRetryable(header.Status) || isWaitingAtPlace(header)) throw notRetryable()
  const place = isWaitingForSlot(header) ? { NextAttemptAt: header.NextAttemptAt } : {}
  return next(stored, { ...due(now), ...place, Status: 'Retrying' }, times)
}

/** Whether the undo of a run waits for its next attempt or for a credential. */
const isUndoWaiting = ({ header, lease }: StoredRun, now: number): boolean =>
  header.Status === 'Undoing' && lease === null && Date.parse(header.NextAttemptAt ?? '') > now

/**
 * Returns status, step and attempt of a run after an operator has settled its step. If the step was done, the run
 * continues with the next step; otherwise the run repeats the step. This also applies to a run that has ended.
 *
 * @throws {IntegrationError} `step_not_found` if the process no longer has the step; `transaction_not_in_doubt` at a place
 *   where the run waits for an event: only the event decides it.
 */
export function settledState(
  { Status, StepName, Attempt }: Pick<Run, 'Status' | 'StepName' | 'Attempt'>,
  { steps, events = [] }: ProcessOutline,
  { outcome }: Settlement,
): Pick<Run, 'Status' | 'StepName' | 'Attempt'> {
  if (events.includes(StepName || steps[0])) throw notInDoubt()
  if (isUndo(Status)) return { Status: 'Undoing', StepName: StepName || steps[0], Attempt: 0 }
  if (outcome === 'not_done')
    return isOver(Status)
      ? { Status: 'Queued', StepName, Attempt: 0 }
      : { Status: 'Retrying', StepName, Attempt }
  const index = steps.indexOf(StepName || steps[0])
  if (index === -1) throw stepUnknown()
  const following = steps[index + 1]
  return following === undefined
    ? { Status: 'Completed', StepName: StepName || steps[0], Attempt }
    : { Status: 'Running', StepName: following, Attempt: 0 }
}

/**
 * Returns the run after an operator has settled the doubt about its step. An ended run that has a later run stays
 * ended, because two runs of a transaction must not be active.
 *
 * @throws {IntegrationError} `transaction_not_in_doubt`, `step_in_flight` or `step_not_found`.
 */
export function settled(
  stored: StoredRun,
  process: ProcessOutline,
  settlement: Settlement,
  isLatest: boolean,
  times: Times,
): StoredRun {
  const { header, lease, items } = stored
  if (isLeased(stored, times.now)) throw stepInFlight()
  if (!header.InDoubt && lease === null) throw notInDoubt()
  requireData(header)
  const changed =
    isOver(header.Status) && !isLatest
      ? { ...stored, header: { ...header, InDoubt: false, UpdatedAt: iso(times.now) } }
      : continued(stored, process, settledState(header, process, settlement), times)
  const StepName = header.StepName || process.steps[0]
  const known = items.find((item) => item.StepName === StepName)
  // A finished step can be in doubt only because of its undo.
  const isOfUndo = isUndo(header.Status) && known !== undefined && isFinished(known)
  const settledItem: Item = isOfUndo
    ? { ...known, Status: 'Undone', FinishedAt: iso(times.now) }
    : {
        ...known,
        StepName,
        Status: 'Completed',
        Attempt: header.Attempt,
        IdempotencyKey: known?.IdempotencyKey ?? idempotencyKey(header, StepName),
        ResponseStatus: null,
        ResponseBody: null,
        Data: settlement.outcome === 'done' ? (settlement.data as Item['Data']) : null,
        Error: null,
        StartedAt: iso(times.now),
        FinishedAt: iso(times.now),
      }
  return {
    ...changed,
    attempts: withLostAttempt(stored),
    ...(settlement.outcome === 'done' && {
      items: [...items.filter((item) => item.StepName !== StepName), settledItem],
    }),
  }
}

/** Returns a settled run that continues with this status and step. If the run had ended, it gets a new deadline. */
function continued(
  stored: StoredRun,
  terms: RunTerms,
  state: Pick<Run, 'Status' | 'StepName' | 'Attempt'>,
  times: Times,
): StoredRun {
  const over = isOver(state.Status)
  const change = {
    ...due(times.now),
    ...state,
    InDoubt: false,
    CompletedAt: over ? iso(times.now) : null,
    ...(over && { NextAttemptAt: null }),
    ...(isOver(stored.header.Status) && deadline(terms, times.now)),
  }
  return next(stored, change, times)
}

/**
 * Returns a run that waited for a credential or for the resume of its company: the step is due again. A run whose company
 * was paused keeps its last error.
 */
export const woken = (stored: StoredRun, times: Times): StoredRun => {
  const { WaitingFor, LastError, ErrorClass } = stored.header
  const Status = stored.header.Status === 'Undoing' ? 'Undoing' : 'Running'
  const kept = WaitingFor?.startsWith(WAITS_FOR_RESUME) === true ? { LastError, ErrorClass } : {}
  return next(stored, { ...due(times.now), ...kept, Status }, times)
}

/** Returns a run that has waited at a place and moves on: the place `following` is due, or the run is completed. */
export function leftPlace(
  stored: StoredRun,
  place: string,
  following: string | null,
  times: Times,
): StoredRun {
  const ends = following === null
  return next(
    stored,
    {
      Status: ends ? 'Completed' : 'Running',
      StepName: following ?? place,
      Attempt: 0,
      WaitingFor: null,
      LastError: null,
      ErrorClass: null,
      NextAttemptAt: ends ? null : iso(times.now),
      CompletedAt: ends ? iso(times.now) : null,
    },
    times,
  )
}

/** Whether a run has ended and is older than the retention time for its outcome. */
export function isOld(
  { header: { Status, CompletedAt } }: StoredRun,
  { completedMs, failedMs }: RetentionPolicy,
  now: number,
): boolean {
  const keptMs = Status === 'Completed' ? completedMs : failedMs
  return CompletedAt !== null && keptMs !== null && Date.parse(CompletedAt) < now - keptMs
}

/**
 * Returns the stub of a purged run: the row without its data. The version does not change, because a purge is not a
 * transition.
 */
export const purged = (stored: StoredRun, now: number): StoredRun => ({
  ...stored,
  header: {
    ...stored.header,
    ...NO_DATA,
    PurgedAt: iso(now),
  },
  items: [],
  attempts: [],
})

/**
 * Returns a new run that replays `latest`. The new run has copies of the items before `fromStep`. Its initial data is
 * `initialData` if given, and otherwise the data of `latest`.
 *
 * @throws {IntegrationError} `invalid_request` if one of these items was never completed.
 */
export function replayed(
  { header, items }: StoredRun,
  { steps, ...terms }: ProcessOutline,
  {
    fromStep,
    initialData,
    concurrencyKey: ConcurrencyKey = null,
  }: Pick<ReplayRequest, 'fromStep' | 'initialData' | 'concurrencyKey'>,
  times: Times,
): StoredRun {
  if (initialData === undefined || fromStep !== null) requireData(header)
  const first = fromStep ?? steps[0]
  const key = { ...runKey(header), ReplayID: header.ReplayID + 1 }
  const copies = steps.slice(0, steps.indexOf(first)).map((step): Item => {
    const item = items.find(({ StepName }) => StepName === step)
    if (item === undefined || !isFinished(item)) throw earlierStepNotCompleted()
    const { State: _state, Round: _round, Report: _report, ...kept } = item
    const Status = item.Status === 'Skipped' ? item.Status : 'Copied'
    return { ...kept, Status, Attempt: 0, IdempotencyKey: idempotencyKey(key, step) }
  })
  const InitialData = initialData === undefined ? header.InitialData : initialData
  const run = queued(key, first, { ...header, ...terms, InitialData, ConcurrencyKey }, times)
  const InputChanged = initialData !== undefined && !hasInitialData(header, initialData)
  // A replay of a child shows its parent, and does not count as its child.
  const parent = header.Parent === undefined ? {} : { Parent: header.Parent }
  return { ...run, header: { ...run.header, ...parent, InputChanged }, items: copies }
}

/**
 * Returns the run in the state that a memory source uses after a restart. Every lease counts as expired, because the
 * only OS process that uses the store has ended. The sweeper must publish the run, because all step messages are lost.
 */
export const afterRestart = (stored: StoredRun, now: number): StoredRun => ({
  ...stored,
  ...(stored.lease !== null && { lease: { ...stored.lease, until: 0 } }),
  // A delayed run is published at once, because its message must be in the delay queue before the run becomes due, and
  // the next sweep may be long after that time.
  nextSweepAt: isWaitingForFamily(stored.header)
    ? stored.nextSweepAt
    : stored.header.Status === 'Queued'
      ? now
      : Math.max(now, Date.parse(stored.header.NextAttemptAt ?? '') || now),
  sweepCount: 0,
})
