import { isCovered } from '@integration-host/shared/access/caller'
import { tagOf } from '@integration-host/shared/contracts/run-filter'
import {
  providerCode,
  providerErrorOf,
} from '@integration-host/shared/provider-profile/provider-fault'
import type { Run } from '../../run/run.ts'
import {
  type RunOrder,
  type RunPage,
  type RunPosition,
  type RunSearch,
  possibleStatuses,
} from '../../run/run-search.ts'
import type { StoredRun } from '../../run/transitions.ts'

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

/** Returns the names of the processes that have runs. */
export const storedProcesses = (stored: readonly StoredRun[]): string[] => [
  ...new Set(stored.map(({ header }) => header.Process)),
]

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
