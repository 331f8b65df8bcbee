/**
 * The store of bulk operations. Reads of several operations, and of the state of one, leave out its ids, because there
 * may be many.
 */
import { installationValues } from '../records/installation.ts'
import { iso, type RecordKind, updateRow } from '../records/records.ts'
import { type ActionKind, type AuditContext, entryOf } from '../run/action.ts'
import {
  MAX_OPEN_OPERATIONS,
  noProgress,
  type Operation,
  type OperationEnd,
  type OperationLease,
  type OperationPosition,
  type OperationProgress,
  type OperationRequest,
  type OperationSummary,
} from './bulk-operation.ts'
import {
  operationNotFound,
  operationNotPaused,
  operationNotRunning,
  tooManyOperations,
} from '../run/errors.ts'
import { LEASE_MS, type TransactionSource } from '../run/transaction-source.ts'
import type { OperationStatus } from '@integration-host/shared/contracts/operations'

/** A row of `Order_Operation`. `Request` is that of a summary if the ids were left out. */
export interface OperationRow extends Omit<Operation, 'Request'> {
  readonly Request: Operation['Request'] | OperationSummary['Request']
  readonly LeaseOwner: string | null
  readonly LeaseUntil: string | null
}

export const OPERATIONS: RecordKind<OperationRow> = {
  table: 'Order_Operation',
  key: ['ID'],
  short: { column: 'Request', list: 'Ids', count: 'IdCount' },
}
const BY_AGE = ['CreatedAt', 'ID'] as const
/** More operations are never open, because each key may have only a few. */
const MAX_OPEN = 10_000

/** How long a start counts that was not stored, in ms. */
const START_MS = 60_000

const shown = <Row extends Partial<OperationRow>>({
  LeaseOwner: _owner,
  LeaseUntil: _until,
  ...operation
}: Row) => operation
const summaryOf = (row: OperationRow) => shown(row) as OperationSummary
const operationOf = (row: OperationRow) => shown(row) as Operation

export type OperationStore = ReturnType<typeof createOperationStore>

export function createOperationStore(
  source: Pick<TransactionSource, 'records'>,
  leaseMs = LEASE_MS,
) {
  const records = source.records(OPERATIONS)
  /**
   * The operations that a key is starting, by id, each with the time at which it no longer counts if it was not stored:
   * two starts with one key change this value, so that each counts the other.
   */
  const starts = installationValues<Readonly<Record<string, number>>>(source, 'Operations of ')

  const open = (where: Partial<OperationRow> = {}) =>
    records.page({ where: { FinishedAt: null, ...where }, by: BY_AGE, limit: MAX_OPEN })
  const find = async (id: string): Promise<OperationRow | undefined> =>
    (await records.page({ where: { ID: id }, by: ['ID'], limit: 1 }))[0]
  /** Changes an operation, unless `next` returns `null`. */
  const change = (
    id: string,
    next: (row: OperationRow, now: number) => Partial<OperationRow> | null,
    action?: readonly [ActionKind, AuditContext],
  ) =>
    updateRow(
      records,
      () => find(id),
      next,
      action && ((_now, row) => actionOf(action[0], row, action[1])),
    )
  const request = async (
    kind: 'stop_operation' | 'continue_operation',
    id: string,
    act: AuditContext,
    next: Parameters<typeof change>[1],
  ): Promise<OperationSummary> => {
    const row = await change(id, next, [kind, act])
    if (row === null) throw operationNotFound()
    return summaryOf(row)
  }

  /** Counts a start with the operations of the key that have not ended, and with its other starts. */
  const reserveStart = (id: string, keyId: string) =>
    starts.change(keyId, async (known = {}, now) => {
      const started = Object.entries(known).filter(([, until]) => until > now)
      const stored = await open({ KeyID: keyId })
      const ids = new Set([...stored.map(({ ID }) => ID), ...started.map(([name]) => name)])
      if (ids.size >= MAX_OPEN_OPERATIONS) throw tooManyOperations(MAX_OPEN_OPERATIONS)
      return { ...Object.fromEntries(started), [id]: now + START_MS }
    })

  /** The operation is stored, or its start has failed. */
  const endStart = (id: string, keyId: string) =>
    starts.change(keyId, (known = {}) => {
      const { [id]: _ended, ...others } = known
      return Object.keys(others).length === 0 ? undefined : others
    })

  return {
    /** Stores an operation, which any replica may claim, and records its start. @throws {IntegrationError} `too_many_operations` */
    async startOperation(
      id: string,
      given: OperationRequest,
      act: AuditContext,
    ): Promise<Operation> {
      await reserveStart(id, act.by.keyId)
      const now = await records.now()
      const row: OperationRow = {
        ID: id,
        ...given,
        Status: 'Running',
        StatusReason: null,
        KeyID: act.by.keyId,
        Person: act.by.person,
        Reason: act.reason,
        Progress: noProgress,
        LeaseOwner: null,
        LeaseUntil: null,
        CreatedAt: iso(now),
        UpdatedAt: iso(now),
        FinishedAt: null,
      }
      await records.replace(undefined, row, actionOf('start_operation', row, act))
      await endStart(id, act.by.keyId)
      return operationOf(row)
    },

    async operation(id: string): Promise<OperationSummary | null> {
      const row = await find(id)
      return row === undefined ? null : summaryOf(row)
    },

    /** Reads operations, newest first. */
    async operations({
      after,
      limit,
    }: {
      readonly after?: OperationPosition | undefined
      readonly limit: number
    }): Promise<{ operations: readonly OperationSummary[]; next: OperationPosition | null }> {
      const rows = await records.page({
        by: BY_AGE,
        isNewestFirst: true,
        ...(after !== undefined && { after: [after.createdAt, after.id] }),
        limit: limit + 1,
      })
      const last = rows.length > limit ? rows[limit - 1] : undefined
      return {
        operations: rows.slice(0, limit).map(summaryOf),
        next: last === undefined ? null : { createdAt: last.CreatedAt, id: last.ID },
      }
    },

    /**
     * Ends an operation early. The replica that works on the operation is notified when it records its progress.
     *
     * @param reason the status reason of the operation; `null` by default, for a person who stops it
     * @throws {IntegrationError} `operation_not_found` or `operation_not_running`.
     */
    stopOperation: (id: string, act: AuditContext, reason: string | null = null) =>
      request('stop_operation', id, act, ({ FinishedAt }, now) => {
        if (FinishedAt !== null) throw operationNotRunning()
        const at = iso(now)
        return { Status: 'Stopped', StatusReason: reason, UpdatedAt: at, FinishedAt: at }
      }),

    /** Continues a paused operation. @throws {IntegrationError} `operation_not_found` or `operation_not_paused`. */
    continueOperation: (id: string, act: AuditContext) =>
      request('continue_operation', id, act, ({ Status }, now) => {
        if (Status !== 'Paused') throw operationNotPaused()
        return { Status: 'Running', StatusReason: null, UpdatedAt: iso(now) }
      }),

    /** Returns the ids of the operations of a key that have not ended. */
    openOperations: async (keyId: string): Promise<readonly string[]> =>
      (await open({ KeyID: keyId })).map(({ ID }) => ID),

    /** Makes an operation independent of the key that has started it. */
    async keepOperation(id: string): Promise<void> {
      // The whole row is read, because its request is replaced.
      await updateRow(records, [id], ({ Request }) => ({
        Request: { ...Request, IsKept: true as const },
      }))
    },

    /**
     * Acquires the lease of a running operation. The operation must act on one of these processes, or else cancel runs
     * or take back, because these need no process definition. Operations that another replica has leased are skipped. Of
     * the remaining operations, chooses the operation whose last change is the oldest, so that released operations
     * alternate. Returns `null` if there is no such operation.
     */
    async claimOperation(processes: readonly string[], owner: string): Promise<Operation | null> {
      for (;;) {
        const now = await records.now()
        const [free] = (await open({ Status: 'Running' }))
          .filter(
            ({ Action, Process, LeaseUntil }) =>
              (Action === 'cancel' || Action === 'take-back' || processes.includes(Process)) &&
              (LeaseUntil === null || Date.parse(LeaseUntil) <= now),
          )
          .toSorted((a, b) => Date.parse(a.UpdatedAt) - Date.parse(b.UpdatedAt))
        if (free === undefined) return null
        const leased = { ...free, LeaseOwner: owner, LeaseUntil: iso(now + leaseMs) }
        if (!(await records.replace(free, leased))) continue
        const [whole] = await records.rows(free.ID)
        if (whole !== undefined) return operationOf(whole)
      }
    },

    /** Extends a lease. Returns false if the lease was lost. */
    renewOperation: async ({ id, owner }: OperationLease): Promise<boolean> =>
      (await change(id, ({ LeaseOwner }, now) =>
        LeaseOwner === owner ? { LeaseUntil: iso(now + leaseMs) } : null,
      )) !== null,

    /**
     * Records the progress of a leased operation. Ends the lease if `end` is given, and otherwise extends it. Returns
     * the status of the operation after the change, or `null` if the lease was lost. The progress is recorded even if
     * the operation was stopped.
     */
    async recordProgress(
      { id, owner }: OperationLease,
      Progress: OperationProgress,
      end?: OperationEnd,
    ): Promise<OperationStatus | null> {
      const row = await change(id, ({ LeaseOwner, Status }, now) => {
        if (LeaseOwner !== owner) return null
        const isRunning = Status === 'Running' // otherwise the operation was stopped meanwhile
        return {
          Progress,
          UpdatedAt: iso(now),
          ...(end === undefined
            ? { LeaseUntil: iso(now + leaseMs) }
            : { LeaseOwner: null, LeaseUntil: null }),
          ...(isRunning &&
            end?.kind === 'paused' && { Status: 'Paused', StatusReason: end.reason }),
          ...(isRunning &&
            end?.kind === 'completed' && { Status: 'Completed', FinishedAt: iso(now) }),
        }
      })
      return row?.Status ?? null
    },

    /** Returns the numbers of running and paused operations. */
    async countOperations(): Promise<Readonly<Record<'Running' | 'Paused', number>>> {
      const rows = await open()
      const count = (status: OperationStatus): number =>
        rows.filter(({ Status }) => Status === status).length
      return { Running: count('Running'), Paused: count('Paused') }
    },

    /** Deletes at most `limit` operations that ended `keptMs` ago: their filters may contain tags. Returns their number. */
    async forgetOperations(keptMs: number, limit: number): Promise<number> {
      const end = (await records.now()) - keptMs
      let removed = 0
      let after: readonly [string, string] | undefined
      do {
        const rows: readonly OperationRow[] = await records.page({
          by: BY_AGE,
          ...(after !== undefined && { after }),
          limit: 100,
        })
        for (const row of rows)
          if (row.FinishedAt !== null && Date.parse(row.FinishedAt) < end && removed < limit)
            removed += Number(await records.replace(row, undefined))
        const last = rows.length < 100 ? undefined : rows.at(-1)
        after = last && Date.parse(last.CreatedAt) < end ? [last.CreatedAt, last.ID] : undefined
      } while (after !== undefined && removed < limit)
      return removed
    },
  }
}

const actionOf = (
  kind: ActionKind,
  { ID, Process }: Pick<Operation, 'ID' | 'Process'>,
  act: AuditContext,
) => entryOf(kind, { ...act, operation: { id: ID, replayId: null } }, { Process })
