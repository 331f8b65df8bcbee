import { isCovered } from '@integration-host/shared/access/caller'
import { tagOf } from '@integration-host/shared/contracts/run-filter'
import {
  providerCode,
  providerErrorOf,
} from '@integration-host/shared/provider-profile/provider-fault'
import type { EndPosition } from '../../run/retention.ts'
import {
  DEFAULT_ATTEMPTS,
  NO_LEASE,
  type RunExports,
  type RunReader,
} from '../../run/run-detail.ts'
import {
  possibleStatuses,
  type RunOrder,
  type RunPage,
  type RunPosition,
  type RunSearch,
} from '../../run/run-search.ts'
import type { Run } from '../../run/run.ts'
import type { StoredRun } from '../../run/transitions.ts'
import { familiesOfRun } from './families.ts'
import type { RunTable } from './run-table.ts'
import type { MemoryStore } from './store.ts'

/** Defaults for the members of an attempt that was stored by an earlier version without them. */
const NO_REQUEST = { Request: null, TraceId: null, ResponseId: null }

export const runReader = ({
  table,
  records,
}: Pick<MemoryStore, 'table' | 'records'>): RunReader => ({
  async get(process, transactionId, replayId, parts = {}) {
    const { attempts = DEFAULT_ATTEMPTS, bodies = true, families = false } = parts
    const stored = table.find(process, transactionId, replayId)
    if (stored === undefined) return null
    const newest = attempts === 0 ? [] : stored.attempts.slice(-attempts)
    const step = typeof bodies === 'object' ? bodies.step : null
    const items = stored.items.filter(({ StepName }) => step === null || StepName === step)
    return {
      run: stored.header,
      lease: leaseOf(stored),
      items: bodies
        ? items
        : items.map(({ State: _state, Ask: _ask, ...item }) => ({
            ...item,
            ResponseBody: null,
            Data: null,
          })),
      attempts: newest.map((attempt) => ({ ...NO_REQUEST, ...attempt })),
      attemptCount: stored.attempts.length,
      families: families ? familiesOfRun({ table, records }, stored.header) : [],
    }
  },

  runsOf: async (process, ids, { before = Number.POSITIVE_INFINITY, limit }) =>
    [...new Set(ids)]
      .flatMap((id) => table.runsOf(process, id))
      .filter(({ header }) => header.ReplayID < before)
      .toSorted((a, b) => b.header.ReplayID - a.header.ReplayID)
      .slice(0, limit)
      .map(({ header }) => ({
        TransactionID: header.TransactionID,
        ReplayID: header.ReplayID,
        Status: header.Status,
        StepName: header.StepName,
        ErrorClass: header.ErrorClass,
        InDoubt: header.InDoubt,
        InputChanged: header.InputChanged,
        DefinitionVersion: header.DefinitionVersion,
        Realm: header.Realm,
        Version: header.Version,
        CreatedAt: header.CreatedAt,
        UpdatedAt: header.UpdatedAt,
        CompletedAt: header.CompletedAt,
        PurgedAt: header.PurgedAt,
      })),
})

const leaseOf = ({ lease }: StoredRun) =>
  lease === null
    ? NO_LEASE
    : {
        LeaseOwner: lease.owner,
        LeaseUntil: new Date(lease.until).toISOString(),
        StartedAt: lease.startedAt,
      }

/** Returns a page of runs, newest first. */
export function searchRuns(stored: readonly StoredRun[], search: RunSearch): RunPage {
  const { order, after, limit } = search
  const matches = predicateOf(search)
  const found = stored
    .map(({ header }) => header)
    .filter((run) => run.PurgedAt === null && matches(run))
    .map((run) => ({ run, position: positionOf(run, order) }))
    .filter(({ position }) => after === null || comparePositions(position, after) < 0)
    .toSorted((a, b) => comparePositions(b.position, a.position))
  const page = found.slice(0, limit)
  return {
    runs: page.map(({ run }) => run),
    next: found.length > limit ? (page.at(-1)?.position ?? null) : null,
  }
}

const changedAt = ({ CompletedAt, UpdatedAt }: Run): string => CompletedAt ?? UpdatedAt

function predicateOf({ process, filter, visible }: RunSearch): (run: Run) => boolean {
  const {
    step,
    class: errorClass,
    version,
    realm,
    waitingFor,
    priority,
    inDoubt,
    idPrefix = '',
    tag = [],
  } = filter
  const statuses = possibleStatuses(filter)
  const tags = tag.map(tagOf)
  const from = filter.from === undefined ? -Infinity : Date.parse(filter.from)
  const until = filter.until === undefined ? Infinity : Date.parse(filter.until)
  const since = filter.since === undefined ? -Infinity : Date.parse(filter.since)
  const isOneOf = (value: string | null, values: readonly string[] | undefined): boolean =>
    values === undefined || (value !== null && values.includes(value))
  return (run) =>
    (process === null || run.Process === process) &&
    statuses.has(run.Status) &&
    isOneOf(run.StepName, step) &&
    (isOneOf(run.ErrorClass, errorClass) ||
      isOneOf(providerCode(providerErrorOf(run)), errorClass)) &&
    isOneOf(run.DefinitionVersion, version) &&
    isOneOf(run.Realm, realm) &&
    isOneOf(run.WaitingFor, waitingFor) &&
    isOneOf(run.Priority, priority) &&
    (inDoubt === undefined || run.InDoubt === inDoubt) &&
    (filter.children === true || run.Parent === undefined) &&
    run.TransactionID.startsWith(idPrefix) &&
    tags.every(({ name, value }) => run.Tags?.[name] === value) &&
    Date.parse(run.CreatedAt) >= from &&
    Date.parse(run.CreatedAt) < until &&
    Date.parse(changedAt(run)) >= since &&
    (run.Realm === null || isCovered(run.Realm, visible.realms)) &&
    isCovered(run.Process, visible.processes)
}

const positionOf = (run: Run, order: RunOrder): RunPosition => ({
  at: order === 'created' ? run.CreatedAt : changedAt(run),
  Process: run.Process,
  TransactionID: run.TransactionID,
  ReplayID: run.ReplayID,
})

function comparePositions(a: RunPosition, b: RunPosition): number {
  for (const member of ['at', 'Process', 'TransactionID'] as const)
    if (a[member] !== b[member]) return a[member] < b[member] ? -1 : 1
  return a.ReplayID - b.ReplayID
}

/** The minimum size of a page. All runs are sorted for each page, so few large pages cost less than many small ones. */
const MIN_PAGE = 1_000

export const createMemoryExports = (table: RunTable): RunExports => ({
  async exportPage({ process, since, until }, after, limit) {
    const [sinceMs, untilMs] = [since === null ? -Infinity : Date.parse(since), Date.parse(until)]
    const found = table
      .all()
      .filter(({ header: { Process, CompletedAt, PurgedAt } }) => {
        const at = Date.parse(CompletedAt ?? '')
        return Process === process && PurgedAt === null && at >= sinceMs && at < untilMs
      })
      .map((stored) => ({ stored, at: endOf(stored.header) }))
      .filter(({ at }) => compareEnds(at, after) > 0)
      .toSorted((a, b) => compareEnds(a.at, b.at))
    const page = found.slice(0, Math.max(limit, MIN_PAGE))
    return {
      runs: page.map(({ stored: { header, items, attempts } }) => ({
        run: header,
        items,
        attempts,
      })),
      next: found.length > page.length ? (page.at(-1)?.at ?? null) : null,
    }
  },
})

const endOf = ({ CompletedAt, TransactionID, ReplayID }: Run): EndPosition => ({
  completedAt: CompletedAt ?? '',
  transactionId: TransactionID,
  replayId: ReplayID,
})

function compareEnds(a: EndPosition, b: EndPosition): number {
  if (a.completedAt !== b.completedAt) return a.completedAt < b.completedAt ? -1 : 1
  if (a.transactionId !== b.transactionId) return a.transactionId < b.transactionId ? -1 : 1
  return a.replayId - b.replayId
}
