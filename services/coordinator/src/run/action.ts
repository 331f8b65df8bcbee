/**
 * The action log. An entry records who did what and why: which key and person queued, replayed, resumed, cancelled,
 * retried or settled which run, paused or resumed which process, or started or stopped which bulk operation,
 * and who exported or read which data. An entry never changes.
 *
 * A1  A change and its entry are committed together, so neither exists without the other.
 * A2  An action that the store rejects is recorded with the code of the rejection. The action has changed nothing, so
 *     its entry is committed on its own.
 *     The same holds for a read of data (routes/read-log.ts), and for a link with which a person decides.
 * A3  An entry contains names and ids, but no business data.
 * A4  A bulk operation changes a transaction at most once: the entry of the change contains the id of the operation,
 *     and the source searches for this entry while it holds the lock of the run.
 */
import type { ActionView } from '@integration-host/shared/contracts/operations'
import type { NewAction, RecordKind } from '../records/records.ts'
import { anotherRunStarted, DoneBefore, versionMoved } from './errors.ts'
import type { RunKey } from './run.ts'
import { firstRunsOf } from './run-detail.ts'
import type { TransactionSource } from './transaction-source.ts'

export type ActionKind =
  | 'queue'
  | 'replay'
  | 'resume'
  | 'cancel'
  | 'requeue_dead_letter'
  | 'delete_dead_letter'
  | 'delete_dead_letters'
  | 'erase'
  | 'retry'
  | 'settle'
  | 'signal'
  | 'link'
  | 'undo'
  | 'pause'
  | 'start_operation'
  | 'stop_operation'
  | 'continue_operation'
  | 'pause_schedule'
  | 'resume_schedule'
  | 'run_schedule'
  | 'purge'
  | 'forget'
  | 'export'
  | 'read_data'
  | 'read_dead_letter'
  | 'read_dead_letters'

/** The `Process` of an entry that is not about one process: a read of several, or the pause of a company. */
export const EVERY_PROCESS = '*'

/** An entry of the action log. */
export type Action = Readonly<ActionView>

/** The actor: the id of a service key, and the person for whom the holder of the key acts. */
export interface Actor {
  readonly keyId: string
  readonly person: string | null
  /** The key whose share limits what the actor may store (`Caller.shareOf`); without it, nothing is limited. */
  readonly shareOf?: string | null
}

/** The actor, and the reason of the action. */
export interface AuditContext {
  readonly by: Actor
  readonly reason: string | null
}

/**
 * The context of an action on a run or process: the actor, the reason, and the conditions under which the action is
 * executed.
 */
export interface Act extends AuditContext {
  /**
   * The required version: if the run has another version, the action is rejected with `version_moved`. `null` allows
   * every version.
   */
  readonly ifVersion: number | null
  /** The bulk operation that acts; absent for a single action. */
  readonly operation?: OperationAct
}

/** An action that a bulk operation performs on the latest run of a transaction. */
export interface OperationAct {
  readonly id: string
  /**
   * The id of the required latest run: if another run is the latest, the action is rejected with `version_moved`.
   * `null` allows every run.
   */
  readonly replayId: number | null
}

/** An entry of the action log about a transaction that an operation has changed. */
export type DoneEntry = Pick<Action, 'Action' | 'ReplayID'>

/**
 * Rejects a repeated or outdated action of a bulk operation.
 *
 * @param latest the latest run of the transaction
 * @param done the action log entry of the change that this operation has already made to the transaction, if there is
 * one
 * @throws {DoneBefore} if the operation has already changed this run.
 * @throws {IntegrationError} `version_moved` if the latest run of the transaction is not the run that the operation
 * expects, or if the operation has changed another run of the transaction.
 */
export function requireFirstAct(
  latest: RunKey,
  { replayId }: OperationAct,
  done: DoneEntry | undefined,
): void {
  if (done !== undefined) {
    // The entry of a replay has the `ReplayID` of the new run, which is higher by one than the `ReplayID` of the
    // replayed run.
    const doneId = (done.ReplayID ?? 0) - (done.Action === 'replay' ? 1 : 0)
    if (replayId === null || replayId === doneId) throw new DoneBefore()
  }
  if (done !== undefined || (replayId !== null && replayId !== latest.ReplayID))
    throw anotherRunStarted(latest.ReplayID)
}

/** @throws {IntegrationError} `version_moved` if the action requires another version of the run. */
export function requireVersion(
  { Version }: { readonly Version: number },
  { ifVersion }: Act,
): void {
  if (ifVersion !== null && ifVersion !== Version) throw versionMoved(Version)
}

/** An action that the store rejected, with the problem code of the rejection; or a read of data, with `done`. */
export interface ActionWithoutChange extends Pick<
  Action,
  'Process' | 'TransactionID' | 'ReplayID' | 'Outcome'
> {
  readonly kind: ActionKind
  readonly act: Act
}

export interface ActionFilter {
  readonly process?: string | undefined
  readonly transactionId?: string | undefined
  /** Returns only entries with a smaller `ID`. */
  readonly before?: number | undefined
  readonly limit: number
}

/** The table of the entries, which are stored only as the actions of other changes. */
export const ACTIONS = {
  table: 'Order_Action',
  key: ['ID'],
  isNumbered: true,
  columns: [
    'ID',
    'At',
    'KeyID',
    'Person',
    'Action',
    'Process',
    'TransactionID',
    'ReplayID',
    'Realm',
    'Reason',
    'Outcome',
    'OperationID',
  ],
} as const satisfies RecordKind<Action>

/** Reads the action log, newest first. */
export const readActions = (
  source: Pick<TransactionSource, 'records'>,
  { process, transactionId, before, limit }: ActionFilter,
): Promise<readonly Action[]> =>
  source.records<Action>(ACTIONS).page({
    where: { Process: process, TransactionID: transactionId },
    by: ['ID'],
    isNewestFirst: true,
    ...(before !== undefined && { after: [before] }),
    limit,
  })

/** Records an action that was rejected, or a read of data. The entry has the realm of the transaction. */
export async function recordWithoutChange(
  source: Pick<TransactionSource, 'records' | 'runsOf'>,
  { kind, act, Outcome, ...what }: ActionWithoutChange,
): Promise<void> {
  const { Process, TransactionID } = what
  const [run] = TransactionID === null ? [] : await firstRunsOf(source, Process, [TransactionID])
  const entry = entryOf(kind, act, { ...what, Realm: run?.Realm ?? null }, Outcome)
  await source.records(ACTIONS).replace(undefined, undefined, entry)
}

/** Returns a new entry. The source adds its `ID` and `At`. */
export const entryOf = (
  kind: ActionKind,
  { by, reason, operation }: Pick<Act, 'by' | 'reason' | 'operation'>,
  what: Pick<Action, 'Process'> & Partial<Pick<Action, 'TransactionID' | 'ReplayID' | 'Realm'>>,
  outcome = 'done',
): NewAction => ({
  KeyID: by.keyId,
  Person: by.person,
  Action: kind,
  Process: what.Process,
  TransactionID: what.TransactionID ?? null,
  ReplayID: what.ReplayID ?? null,
  Realm: what.Realm ?? null,
  Reason: reason,
  Outcome: outcome,
  OperationID: operation?.id ?? null,
})
