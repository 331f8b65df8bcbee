/** The rows that statements return, and their conversion to the types of the domain. */
import type postgres from 'postgres'
import type { Transition } from '../../run/progress.ts'
import {
  type Attempt,
  type FinishedItem,
  isFinished,
  type Item,
  type Round,
} from '../../run/item.ts'
import type { EndPosition } from '../../run/retention.ts'
import type { Run, RunKey } from '../../run/run.ts'
import { isOver } from '../../run/status.ts'
import type { Claim, ClaimRequest, Lease, RunState } from '../../run/transaction-source.ts'
import { isoTime } from '@integration-host/postgres/client'
import type { orderAttempt, orderHeader, orderItem } from './schema/runs.ts'

export type RunRow = typeof orderHeader.$inferSelect
export type ItemRow = typeof orderItem.$inferSelect
export type AttemptRow = typeof orderAttempt.$inferSelect
/** Returns the priority that a number in the column `Priority` means. */
const priorityOf = (stored: number): Run['Priority'] => (stored > 0 ? 'high' : 'normal')
/** Returns the number that the column `Priority` has for a priority. */
export const storedPriority = (priority: Run['Priority']): number => (priority === 'high' ? 1 : 0)

/** A row with the index of its request in the batch. */
export type Numbered<Row> = Row & { readonly n: number }

export const runOf = (row: RunRow): Run => ({
  Process: row.Process,
  TransactionID: row.TransactionID,
  ReplayID: row.ReplayID,
  Status: row.Status,
  StepName: row.StepName,
  InitialData: row.InitialData as Run['InitialData'],
  Realm: row.Realm,
  Version: row.Version,
  Attempt: row.Attempt,
  NextAttemptAt: row.NextAttemptAt,
  WaitingFor: row.WaitingFor,
  LastError: row.LastError,
  ErrorClass: row.ErrorClass,
  InDoubt: row.InDoubt,
  Priority: priorityOf(row.Priority),
  DefinitionVersion: row.DefinitionVersion,
  DeadlineAt: row.DeadlineAt,
  NotBefore: row.NotBefore,
  DebounceKey: row.DebounceKey,
  Absorbed: row.Absorbed ?? 0,
  CreatedAt: row.CreatedAt,
  UpdatedAt: row.UpdatedAt,
  CompletedAt: row.CompletedAt,
  Tags: row.Tags,
  ConcurrencyKey: row.ConcurrencyKey,
  InputChanged: row.InputChanged,
  ErasedAt: row.ErasedAt,
  PurgedAt: row.PurgedAt,
  ...parentOf(row),
})

function parentOf({
  ParentProcess: Process,
  ParentTransactionID: TransactionID,
  ParentReplayID: ReplayID,
  ParentPlace: Place,
}: RunRow): Pick<Run, 'Parent'> {
  // Another program may have set only some of the columns.
  if (Process === null || TransactionID === null || ReplayID === null || Place === null) return {}
  return { Parent: { Process, TransactionID, ReplayID, Place } }
}

export type ClaimedRow = Pick<
  Numbered<RunRow>,
  | 'n'
  | 'Status'
  | 'Version'
  | 'Attempt'
  | 'InDoubt'
  | 'Priority'
  | 'InitialData'
  | 'Realm'
  | 'NextAttemptAt'
  | 'LastError'
  | 'ErrorClass'
  | 'DefinitionVersion'
  | 'DeadlineAt'
  | 'CreatedAt'
  | 'UpdatedAt'
> & { readonly items: ClaimedItemRow[] | null }

type ClaimedItemRow = FinishedItem & Pick<ItemRow, 'State' | 'Round'>

/**
 * Builds a claim from the returned row and from the request, because the statement does not return values that the
 * request contains.
 */
export function claimOf(
  { Process, TransactionID, ReplayID, step, owner }: ClaimRequest,
  row: ClaimedRow,
): Claim {
  const rows = row.items ?? []
  const priority = priorityOf(row.Priority)
  const round = roundOf(rows.find((item) => item.StepName === step && !isFinished(item)))
  return {
    lease: {
      Process,
      TransactionID,
      ReplayID,
      step,
      version: row.Version,
      owner,
      attempt: row.Attempt,
      ...(priority !== 'normal' && { priority }),
      ...(round !== null && { round: round.number }),
      startedAt: row.UpdatedAt,
    },
    run: {
      Process,
      TransactionID,
      ReplayID,
      Status: row.Status,
      StepName: step,
      InitialData: row.InitialData as Run['InitialData'],
      Realm: row.Realm,
      Version: row.Version,
      Attempt: row.Attempt,
      InDoubt: row.InDoubt,
      Priority: priority,
      NextAttemptAt: row.NextAttemptAt,
      WaitingFor: null,
      LastError: row.LastError,
      ErrorClass: row.ErrorClass,
      DefinitionVersion: row.DefinitionVersion,
      DeadlineAt: row.DeadlineAt,
      CreatedAt: row.CreatedAt,
      UpdatedAt: row.UpdatedAt,
      CompletedAt: null,
    },
    items: rows.filter(isFinished).map(({ State: _state, Round: _round, ...item }) => item),
    ...(round !== null && { round }),
  }
}

function roundOf(row: ClaimedItemRow | undefined): Round | null {
  const number = row?.Round ?? null
  return number === null ? null : { number, state: row?.State as Round['state'] }
}

/** The columns of a {@link RunState}, with the realm, of the run `h`. */
export const stateColumns = (sql: postgres.Sql | postgres.TransactionSql) => sql`
  h."Process", h."TransactionID", h."ReplayID", h."Status", h."StepName", h."Version", h."Attempt",
  h."InDoubt", case when h."Priority" > 0 then 'high' else 'normal' end as "Priority", h."Realm",
  h."NextAttemptAt", h."WaitingFor", h."LastError", h."ErrorClass", h."UpdatedAt",
  h."CompletedAt"`

/** What the database has set while it recorded a batch of outcomes. */
export interface RecordedBatch {
  /** The time of the batch. */
  readonly at: string
  /** The indexes of the recorded outcomes in the batch. */
  readonly numbers: readonly number[]
  /** The due times of the runs that are not due at once, by index; `null` if there are none. */
  readonly later: Readonly<Record<number, string>> | null
}

/**
 * Returns the state of a run after the recorded transition with this index. The caller knows all values except the
 * times that the database has set.
 */
export function stateOf(
  lease: Lease,
  transition: Transition,
  n: number,
  { at, later }: RecordedBatch,
): RunState {
  const hasEnded = isOver(transition.status)
  const laterAt = later?.[n]
  return {
    Process: lease.Process,
    TransactionID: lease.TransactionID,
    ReplayID: lease.ReplayID,
    Status: transition.status,
    StepName: transition.stepName,
    Version: lease.version + 1,
    Attempt: transition.attempt,
    InDoubt: transition.isInDoubt,
    Priority: lease.priority ?? 'normal',
    NextAttemptAt:
      hasEnded || transition.delayMs === null
        ? null
        : laterAt === undefined
          ? at
          : isoTime(laterAt),
    WaitingFor: transition.waitingFor,
    LastError: transition.lastError,
    ErrorClass: transition.errorClass,
    UpdatedAt: at,
    CompletedAt: hasEnded ? at : null,
  }
}

// Times in rows that arrive as JSON are in PostgreSQL's own format, because the driver converts only the times of
// columns.
const iso = (time: string | null): string | null => (time === null ? null : isoTime(time))

export const itemOf = (row: ItemRow): Item => ({
  StepName: row.StepName,
  Status: row.Status,
  Attempt: row.Attempt,
  IdempotencyKey: row.IdempotencyKey,
  ResponseStatus: row.ResponseStatus,
  ResponseBody: row.ResponseBody,
  Data: row.Data as Item['Data'],
  Error: row.Error,
  StartedAt: iso(row.StartedAt),
  FinishedAt: iso(row.FinishedAt),
  ...present({
    State: row.State as Item['State'],
    Round: row.Round,
    Report: row.Report as Item['Report'],
    Ask: row.Ask as Item['Ask'],
    Sender: row.Sender as Item['Sender'],
  }),
})

/** Returns the members that have a value. Members that only few items have are left out of all others. */
const present = <Members extends object>(
  members: Members,
): { [Name in keyof Members]?: Exclude<Members[Name], null | undefined> } =>
  Object.fromEntries(
    Object.entries(members).filter(([, value]) => value !== null && value !== undefined),
  ) as { [Name in keyof Members]?: Exclude<Members[Name], null | undefined> }

export const attemptOf = (row: AttemptRow): Attempt => ({
  StepName: row.StepName,
  Attempt: row.Attempt,
  Outcome: row.Outcome,
  ResponseStatus: row.ResponseStatus,
  Error: row.Error,
  Request: row.Method === null || row.Url === null ? null : { Method: row.Method, Url: row.Url },
  TraceId: row.TraceID,
  ResponseId: row.ResponseID,
  StartedAt: isoTime(row.StartedAt),
  FinishedAt: iso(row.FinishedAt),
})

/**
 * Returns the position of the last row of a page of finished runs; `null` if the page is not full, which means that no
 * runs follow. `position` is the time at which the run ended, as text with microseconds.
 */
export function positionAfter(
  rows: readonly (Pick<RunKey, 'TransactionID' | 'ReplayID'> & { readonly position: string })[],
  limit: number,
): EndPosition | null {
  const last = rows.at(-1)
  if (last === undefined || rows.length < limit) return null
  const { position: completedAt, TransactionID: transactionId, ReplayID: replayId } = last
  return { completedAt, transactionId, replayId }
}
