/** The bulk operations of the memory source. Leases are not written to disk, because a restart ends all leases. */
import type { OperationStatus } from '@integration-host/shared/contracts/operation'
import { type ActionKind, type AuditContext, entryOf } from '../../transaction/action.ts'
import {
  type Operation,
  MAX_OPEN_OPERATIONS,
  type OperationStore,
  type OperationSummary,
  noProgress,
} from '../../transaction/bulk-operation.ts'
import {
  operationNotFound,
  operationNotPaused,
  operationNotRunning,
  tooManyOperations,
} from '../../transaction/errors.ts'
import type { MemoryStore } from './store.ts'

/**
 * The journal entry of a changed bulk operation. Only the first entry of an operation contains the request, because a
 * request may contain many ids.
 */
export type OperationChange = Omit<Operation, 'Request'> & Partial<Pick<Operation, 'Request'>>

export interface OperationTable {
  get(id: string): Operation | undefined
  put(change: OperationChange): void
  remove(id: string): void
  /** Returns all operations, oldest first. */
  all(): readonly Operation[]
}

export function createOperationTable(): OperationTable {
  const operations = new Map<string, Operation>()
  return {
    get: (id) => operations.get(id),
    put(change) {
      const Request = change.Request ?? operations.get(change.ID)?.Request
      if (Request !== undefined) operations.set(change.ID, { ...change, Request })
    },
    remove: (id) => void operations.delete(id),
    all: () => [...operations.values()],
  }
}

export function createMemoryOperations(
  { operations, log, commit }: Pick<MemoryStore, 'operations' | 'log' | 'commit'>,
  { now, leaseMs }: { readonly now: () => number; readonly leaseMs: number },
): OperationStore {
  const leases = new Map<string, { readonly owner: string; readonly until: number }>()
  const entry = (kind: ActionKind, { ID, Process }: Operation, act: AuditContext) =>
    log.next(
      entryOf(kind, { ...act, operation: { id: ID, replayId: null } }, { Process }, { now: now() }),
    )
  const changed = ({ Request: _request, ...operation }: Operation, change: Partial<Operation>) => ({
    ...operation,
    ...change,
    UpdatedAt: new Date(now()).toISOString(),
  })
  const findOrThrow = (id: string): Operation => {
    const operation = operations.get(id)
    if (operation === undefined) throw operationNotFound()
    return operation
  }
  const read = (id: string): OperationSummary => summaryOf(findOrThrow(id))
  const extend = (id: string, owner: string): void =>
    void leases.set(id, { owner, until: now() + leaseMs })
  return {
    async startOperation(id, request, act) {
      const open = operations
        .all()
        .filter(({ FinishedAt, KeyID }) => FinishedAt === null && KeyID === act.by.keyId)
      if (open.length >= MAX_OPEN_OPERATIONS) throw tooManyOperations(MAX_OPEN_OPERATIONS)
      const at = new Date(now()).toISOString()
      const operation: Operation = {
        ID: id,
        ...request,
        Status: 'Running',
        StatusReason: null,
        KeyID: act.by.keyId,
        Person: act.by.person,
        Reason: act.reason,
        Progress: noProgress,
        CreatedAt: at,
        UpdatedAt: at,
        FinishedAt: null,
      }
      await commit({ operation, action: entry('start_operation', operation, act) })
      return operation
    },
    async operation(id) {
      const operation = operations.get(id)
      return operation === undefined ? null : summaryOf(operation)
    },
    async operations({ after, limit }) {
      const found = operations
        .all()
        .filter(
          ({ CreatedAt, ID }) =>
            after === undefined ||
            CreatedAt < after.createdAt ||
            (CreatedAt === after.createdAt && ID < after.id),
        )
        .toSorted((a, b) => (`${a.CreatedAt} ${a.ID}` < `${b.CreatedAt} ${b.ID}` ? 1 : -1))
      const page = found.slice(0, limit)
      const last = page.at(-1)
      return {
        operations: page.map(summaryOf),
        next:
          last !== undefined && found.length > limit
            ? { createdAt: last.CreatedAt, id: last.ID }
            : null,
      }
    },
    async openOperations(keyId) {
      return operations
        .all()
        .filter(({ FinishedAt, KeyID }) => FinishedAt === null && KeyID === keyId)
        .map(({ ID }) => ID)
    },
    async keepOperation(id) {
      const { Request, ...operation } = findOrThrow(id)
      await commit({ operation: { ...operation, Request: { ...Request, IsKept: true } } })
    },
    async stopOperation(id, act, reason) {
      const operation = findOrThrow(id)
      if (operation.FinishedAt !== null) throw operationNotRunning()
      const FinishedAt = new Date(now()).toISOString()
      await commit({
        operation: changed(operation, {
          Status: 'Stopped',
          StatusReason: reason ?? null,
          FinishedAt,
        }),
        action: entry('stop_operation', operation, act),
      })
      return read(id)
    },
    async continueOperation(id, act) {
      const operation = findOrThrow(id)
      if (operation.Status !== 'Paused') throw operationNotPaused()
      await commit({
        operation: changed(operation, { Status: 'Running', StatusReason: null }),
        action: entry('continue_operation', operation, act),
      })
      return read(id)
    },
    async claimOperation(processes, owner) {
      const [free] = operations
        .all()
        .filter(
          ({ ID, Action, Status, Process }) =>
            Status === 'Running' &&
            (Action === 'cancel' || processes.includes(Process)) &&
            (leases.get(ID)?.until ?? 0) <= now(),
        )
        .toSorted((a, b) => Date.parse(a.UpdatedAt) - Date.parse(b.UpdatedAt))
      if (free !== undefined) extend(free.ID, owner)
      return free ?? null
    },
    async renewOperation({ id, owner }) {
      if (leases.get(id)?.owner !== owner) return false
      extend(id, owner)
      return true
    },
    async recordProgress({ id, owner }, progress, end) {
      const operation = operations.get(id)
      if (operation === undefined || leases.get(id)?.owner !== owner) return null
      if (end === undefined) extend(id, owner)
      else leases.delete(id)
      const isOver = operation.Status !== 'Running' // the operation was stopped meanwhile
      const Status: OperationStatus =
        isOver || end === undefined || end.kind === 'release'
          ? operation.Status
          : end.kind === 'completed'
            ? 'Completed'
            : 'Paused'
      await commit({
        operation: changed(operation, {
          Progress: progress,
          Status,
          ...(Status === 'Paused' && end?.kind === 'paused' && { StatusReason: end.reason }),
          ...(Status === 'Completed' && { FinishedAt: new Date(now()).toISOString() }),
        }),
      })
      return Status
    },
    async countOperations() {
      const count = (status: OperationStatus): number =>
        operations.all().filter(({ Status }) => Status === status).length
      return { Running: count('Running'), Paused: count('Paused') }
    },
  }
}

const summaryOf = ({
  Request: { Ids, ...request },
  ...operation
}: Operation): OperationSummary => ({
  ...operation,
  Request: { ...request, IdCount: Ids?.length ?? null },
})
