import { providerErrorOf } from '@integration-host/shared/provider-profile/provider-fault'
import { type Audit, auditOf, type EndedGroup, type UnfinishedGroup } from '../../run/audit.ts'
import type { Pauses } from '../../run/pause.ts'
import { isDueStatus, isOver } from '../../run/status.ts'
import { STUCK_MS } from '../../run/transaction-source.ts'
import type { StoredRun } from '../../run/transitions.ts'

/** Counts runs, and counts violations of the invariants that `Audit` lists. `now` is epoch ms. */
export function auditRuns(
  stored: readonly StoredRun[],
  processes: readonly string[],
  paused: Pauses,
  now: number,
): Audit {
  const runs = stored.filter(({ header }) => header.PurgedAt === null)
  const isActive = ({ header }: StoredRun): boolean => !isOver(header.Status)
  const hasItem = ({ header, items }: StoredRun): boolean =>
    items.some(
      ({ StepName, Status }) =>
        StepName === header.StepName && (Status === 'Completed' || Status === 'Skipped'),
    )
  const count = (test: (run: StoredRun) => boolean): number => runs.filter(test).length
  const isCompleted = ({ header }: StoredRun): boolean => header.Status === 'Completed'
  const endedBadly = runs.filter((run) => !isActive(run) && !isCompleted(run))
  const counts = {
    at: new Date(now).toISOString(),
    unfinished: groupsOf(runs.filter(isActive), now),
    endedBadly: endedGroups(endedBadly.map(withoutVersion), now),
    completed: count(isCompleted),
    inexact: { unfinished: false, endedBadly: false, completed: false },
    itemViolations: {
      completedWithoutItem: count((run) => isCompleted(run) && !hasItem(run)),
      itemAhead: count((run) => isActive(run) && hasItem(run)),
      orphanItems: 0,
    },
  }
  return auditOf(counts, { processes, paused })
}

/**
 * Returns a copy of a run without its definition version. An audit does not group ended runs by version, because the
 * PostgreSQL source counts ended runs in an index that has no version column.
 */
const withoutVersion = (stored: StoredRun): StoredRun => ({
  ...stored,
  header: { ...stored.header, DefinitionVersion: null },
})

const endedGroups = (runs: readonly StoredRun[], now: number): EndedGroup[] =>
  [...Map.groupBy(runs, ({ header }) => providerErrorOf(header))]
    .flatMap(([ProviderError, same]) => endedAlike(same, ProviderError, now))
    .toSorted((a, b) => b.Count - a.Count)

function endedAlike(
  runs: readonly StoredRun[],
  ProviderError: string | null,
  now: number,
): EndedGroup[] {
  return groupsOf(runs, now).map(
    ({ due: _due, oldestDueMs: _oldest, stuck: _stuck, DefinitionVersion: _version, ...group }) => {
      const ends = runs
        .map(({ header }) => header)
        .filter(
          ({ Process, Status, StepName, ErrorClass }) =>
            Process === group.Process &&
            Status === group.Status &&
            StepName === group.StepName &&
            ErrorClass === group.ErrorClass,
        )
        .flatMap(({ CompletedAt }) => CompletedAt ?? [])
      return { ...group, FirstEndedAt: ends.toSorted()[0] ?? null, ProviderError }
    },
  )
}

function groupsOf(runs: readonly StoredRun[], now: number): UnfinishedGroup[] {
  const groups = new Map<string, UnfinishedGroup>()
  for (const run of runs) {
    const { Process, Status, StepName, ErrorClass, WaitingFor, InDoubt, CreatedAt } = run.header
    const { DefinitionVersion } = run.header
    const group = [Process, Status, StepName, ErrorClass, WaitingFor, DefinitionVersion]
    const key = JSON.stringify(group)
    const known = groups.get(key)
    const dueMs = dueMsOf(run, now)
    groups.set(key, {
      Process,
      Status,
      StepName,
      ErrorClass,
      WaitingFor,
      DefinitionVersion,
      Count: (known?.Count ?? 0) + 1,
      InDoubt: (known?.InDoubt ?? 0) + Number(InDoubt),
      OldestCreatedAt:
        known !== undefined && known.OldestCreatedAt < CreatedAt
          ? known.OldestCreatedAt
          : CreatedAt,
      due: (known?.due ?? 0) + Number(dueMs !== null),
      oldestDueMs: Math.max(known?.oldestDueMs ?? 0, dueMs ?? 0),
      stuck: (known?.stuck ?? 0) + Number(run.nextSweepAt < now - STUCK_MS),
    })
  }
  return [...groups.values()].toSorted((a, b) => b.Count - a.Count)
}

/** Returns for how many milliseconds the run has been claimable; `null` if no worker can claim it now. */
function dueMsOf({ header, lease }: StoredRun, now: number): number | null {
  if (!isDueStatus(header.Status) || header.WaitingFor !== null) return null
  const ms = now - Math.max(Date.parse(header.NextAttemptAt ?? ''), lease?.until ?? 0)
  return ms >= 0 ? ms : null
}
