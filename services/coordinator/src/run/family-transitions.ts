/** The transitions of children and their parents, as pure functions for the memory source ({@link StoredRun}). */
import {
  CHILDREN_FAILED,
  type ChildrenPage,
  type Join,
  type NewChild,
  NEVER_SWEPT_MS,
  PARENT_ENDED,
  PARENT_ENDED_TEXT,
} from './families.ts'
import { isWaitingForChildren, WAITS_FOR_TURN } from './status.ts'
import {
  cancelled,
  leftPlace,
  next,
  queued,
  resumed,
  type StoredRun,
  type Times,
  undoing,
} from './transitions.ts'

const iso = (at: number): string => new Date(at).toISOString()

/** Returns a new child: it is due, or waits for its turn. */
export function newChild(
  { Process, TransactionID, ReplayID, Priority }: StoredRun['header'],
  { process, Concurrent, Place }: ChildrenPage,
  { Item, ...child }: NewChild,
  times: Times,
): StoredRun {
  const key = { Process: process.name, TransactionID: child.TransactionID, ReplayID: 0 }
  const InitialData = child.InitialData as StoredRun['header']['InitialData']
  const run = queued(key, process.steps[0], { ...process, ...child, InitialData, Priority }, times)
  const Parent = { Process, TransactionID, ReplayID, Place }
  const stored = { ...run, header: { ...run.header, Parent }, item: Item }
  return Concurrent === null ? stored : waitingForTurn(stored, Place, times)
}

/** Returns a child that has failed or was cancelled, resumed with its parent. */
export const resumedChild = (
  stored: StoredRun,
  { process, Concurrent, Place }: ChildrenPage,
  times: Times,
): StoredRun => {
  const run = resumed(stored, times, process)
  return Concurrent === null ? run : waitingForTurn(run, Place, times)
}

const waitingForTurn = (stored: StoredRun, place: string, { now }: Times): StoredRun => ({
  ...stored,
  header: {
    ...stored.header,
    Status: 'Waiting',
    WaitingFor: WAITS_FOR_TURN + place,
    NextAttemptAt: null,
    // The time limit counts from the turn.
    DeadlineAt: null,
  },
  nextSweepAt: now + NEVER_SWEPT_MS,
})

/** Returns a child that has got its turn: it is due, also for the sweeper. */
export const withTurn = (stored: StoredRun, deadlineMs: number | null, times: Times): StoredRun =>
  next(
    stored,
    {
      Status: 'Queued',
      WaitingFor: null,
      NextAttemptAt: iso(times.now),
      DeadlineAt: deadlineMs === null ? null : iso(times.now + deadlineMs),
    },
    times,
    0,
  )

/** Returns a child that was cancelled because of its parent or its siblings. */
export function cancelledChild(stored: StoredRun, times: Times): StoredRun {
  const run = cancelled(stored, times)
  if (run.header.Status !== 'Cancelled') return run
  return {
    ...run,
    header: { ...run.header, ErrorClass: PARENT_ENDED, LastError: PARENT_ENDED_TEXT },
  }
}

/** Whether a child has not started. */
export const isNotStarted = ({ header: { Status, Version, WaitingFor } }: StoredRun): boolean =>
  WaitingFor?.startsWith(WAITS_FOR_TURN) === true || (Status === 'Queued' && Version <= 1)

/** Returns a parent after its children have ended; `null` if it does not wait for them any more. */
export function joined(stored: StoredRun, join: Join, times: Times): StoredRun | null {
  const { header, items } = stored
  const isUndoing = header.Status === 'Undoing'
  if (!isWaitingForChildren(header) || header.StepName !== join.Place) return null
  if (isUndoing !== (join.kind === 'due')) return null
  const at = iso(times.now)
  if (isUndoing) return next(stored, { WaitingFor: null, NextAttemptAt: at }, times)
  const item = items.find(({ StepName }) => StepName === join.Place)
  const isDone = join.kind === 'completed'
  const Data = join.data as NonNullable<typeof item>['Data']
  const Status = isDone ? ('Completed' as const) : ('Failed' as const)
  const ended = { ...stored }
  if (item !== undefined)
    ended.items = [
      ...items.filter((other) => other !== item),
      { ...item, Status, Data, Error: join.error, FinishedAt: at },
    ]
  if (isDone) return leftPlace(ended, join.Place, join.next, times)
  const failure = { ErrorClass: CHILDREN_FAILED, LastError: join.error }
  return join.kind === 'undo'
    ? next(ended, { ...undoing(times.now), ...failure }, times)
    : next(
        ended,
        {
          ...failure,
          Status: 'Failed',
          Attempt: 0,
          NextAttemptAt: null,
          WaitingFor: null,
          CompletedAt: at,
        },
        times,
      )
}
