/**
 * The audit of a transaction source counts its runs and checks its tables. It runs every minute on each replica, so its
 * cost must not grow with the number of finished runs. A source therefore counts unfinished, failed and cancelled runs
 * only up to a limit, and may estimate the number of completed runs.
 */
import type { HeaderStatus } from '@integration-host/shared/contracts/transaction'
import type { Pauses } from './pause.ts'
import type { Run } from './run.ts'

/**
 * A group of runs with the same status, step and error class. Unfinished runs that wait for different credentials are
 * in different groups.
 */
export interface RunGroup extends Pick<Run, 'Process' | 'Status' | 'ErrorClass' | 'WaitingFor'> {
  /**
   * The step of the runs. If many ended runs have the same error class, an audit reads only the steps of the oldest
   * runs. The newer runs form a group whose `StepName` is `null`.
   */
  readonly StepName: string | null
  readonly Count: number
  /** The number of runs in the group that are in doubt. */
  readonly InDoubt: number
  /** The time at which the oldest run of the group was queued. */
  readonly OldestCreatedAt: string
}

/** A group of failed or cancelled runs. */
export interface EndedGroup extends RunGroup {
  /** The time at which the first of these runs ended; `null` if their rows were not read, because there are too many. */
  readonly FirstEndedAt: string | null
  /**
   * The provider's code and message with which these runs ended, a text from outside; `null` if they ended otherwise, if
   * their rows were not read, or if the runs of their step ended with very many different messages.
   */
  readonly ProviderError: string | null
}

export interface UnfinishedGroup extends RunGroup, Pick<Run, 'DefinitionVersion'> {
  readonly StepName: string
  /** The number of runs in the group that a worker could claim now. */
  readonly due: number
  /** For how long the oldest due run of the group has been due; 0 if no run is due. */
  readonly oldestDueMs: number
  /** The number of runs in the group that have been overdue for longer than `STUCK_MS`. */
  readonly stuck: number
}

/** The counts that a source returns. {@link auditOf} derives the other results of the audit from them. */
export interface AuditCounts {
  /** The time of the audit by the clock of the source. */
  readonly at: string
  readonly unfinished: readonly UnfinishedGroup[]
  /** Failed and cancelled runs. */
  readonly endedBadly: readonly EndedGroup[]
  readonly completed: number
  /** Says which of the counts are not exact. */
  readonly inexact: {
    /** Whether there may be more unfinished runs than were counted. */
    readonly unfinished: boolean
    /** Whether there may be more failed and cancelled runs than were counted. */
    readonly endedBadly: boolean
    /** Whether the number of completed runs is an estimate, which may be too small or too large. */
    readonly completed: boolean
  }
  readonly itemViolations: Pick<
    Audit['violations'],
    'completedWithoutItem' | 'itemAhead' | 'orphanItems'
  >
}

/** The runs at one step that a worker could claim now. `step` is empty for rows without a step name. */
export interface DueRuns {
  readonly process: string
  readonly step: string
  readonly due: number
  /** For how long the oldest of the due runs has been due. */
  readonly oldestMs: number
}

/** The result of a consistency check of the tables. All counts in `violations` must be 0. */
export interface Audit extends Omit<AuditCounts, 'completed' | 'itemViolations'> {
  readonly runsByStatus: Readonly<Partial<Record<HeaderStatus, number>>>
  readonly dueBySteps: readonly DueRuns[]
  /** For each process that is not loaded, the number of its unfinished runs. */
  readonly unknownProcesses: Readonly<Record<string, number>>
  readonly violations: {
    /** Completed runs without a completed item. */
    readonly completedWithoutItem: number
    /** Runs whose current step already has a completed item. */
    readonly itemAhead: number
    /** Items that belong to no run. */
    readonly orphanItems: number
    /** Runs that have been overdue for longer than `STUCK_MS`. */
    readonly stuck: number
    /** Active runs of processes that are not loaded. */
    readonly unknownProcess: number
  }
}

export function auditOf(
  counts: AuditCounts,
  { processes, paused }: { readonly processes: readonly string[]; readonly paused: Pauses },
): Audit {
  const { unfinished, endedBadly, completed, itemViolations } = counts
  const runsByStatus: Partial<Record<HeaderStatus, number>> = {}
  for (const { Status, Count } of [...unfinished, ...endedBadly])
    runsByStatus[Status] = (runsByStatus[Status] ?? 0) + Count
  if (completed > 0) runsByStatus.Completed = completed
  const unknownProcesses: Record<string, number> = {}
  for (const { Process, Count } of unfinished)
    if (!processes.includes(Process))
      unknownProcesses[Process] = (unknownProcesses[Process] ?? 0) + Count
  return {
    at: counts.at,
    unfinished,
    endedBadly,
    inexact: counts.inexact,
    runsByStatus,
    dueBySteps: dueBySteps(unfinished),
    unknownProcesses,
    violations: {
      ...itemViolations,
      stuck: sum(
        unfinished.filter(({ Process }) => !paused.has(Process)).map(({ stuck }) => stuck),
      ),
      unknownProcess: sum(Object.values(unknownProcesses)),
    },
  }
}

function dueBySteps(groups: readonly UnfinishedGroup[]): DueRuns[] {
  const bySteps = new Map<string, DueRuns>()
  for (const { Process: process, StepName: step, due, oldestDueMs } of groups) {
    if (due === 0) continue
    const key = JSON.stringify([process, step])
    const known = bySteps.get(key) ?? { due: 0, oldestMs: 0 }
    const oldestMs = Math.max(known.oldestMs, oldestDueMs)
    bySteps.set(key, { process, step, due: known.due + due, oldestMs })
  }
  return [...bySteps.values()]
}

const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0)

/** The counts of one process in the latest audit, without completed runs. */
export interface ProcessSummary {
  readonly At: string
  readonly Process: string
  readonly Unfinished: readonly Omit<UnfinishedGroup, 'Process' | 'due' | 'oldestDueMs' | 'stuck'>[]
  /** Failed and cancelled runs. */
  readonly EndedBadly: readonly Omit<EndedGroup, 'Process' | 'WaitingFor'>[]
  /** Whether there may be more runs than were counted. */
  readonly IsLowerBound: boolean
}

/**
 * The maximum number of groups of unfinished runs, and the maximum number of groups of ended runs. The smallest groups
 * are left out.
 */
const MAX_GROUPS = 1_000

export function summaryOf(
  { at, unfinished, endedBadly, inexact }: Audit,
  process: string,
): ProcessSummary {
  const isOfProcess = ({ Process }: RunGroup): boolean => Process === process
  const open = unfinished.filter(isOfProcess)
  const ended = endedBadly.filter(isOfProcess)
  return {
    At: at,
    Process: process,
    Unfinished: open
      .slice(0, MAX_GROUPS)
      .map(
        ({ Process: _process, due: _due, oldestDueMs: _oldest, stuck: _stuck, ...group }) => group,
      ),
    EndedBadly: ended
      .slice(0, MAX_GROUPS)
      .map(({ Process: _process, WaitingFor: _waitingFor, ...group }) => group),
    IsLowerBound:
      inexact.unfinished ||
      inexact.endedBadly ||
      open.length > MAX_GROUPS ||
      ended.length > MAX_GROUPS,
  }
}

/** The unfinished runs of a process in the latest audit, by the version of the definition with which they began. */
export interface ProcessVersions {
  readonly At: string
  /** The current version first, then the others by descending number of unfinished runs. */
  readonly Items: readonly { readonly Version: string | null; readonly Unfinished: number }[]
  /** Whether there may be more unfinished runs than were counted. */
  readonly IsLowerBound: boolean
}

/**
 * Counts the unfinished runs of each version. The version `inForce` is listed even if no unfinished run has this
 * version.
 */
export function versionsOf(
  { at, unfinished, inexact }: Audit,
  process: string,
  inForce: string | null,
): ProcessVersions {
  const counts = new Map<string | null, number>([[inForce, 0]])
  for (const { Process, DefinitionVersion, Count } of unfinished)
    if (Process === process)
      counts.set(DefinitionVersion, (counts.get(DefinitionVersion) ?? 0) + Count)
  const isInForce = (version: string | null): number => Number(version === inForce)
  return {
    At: at,
    Items: [...counts]
      .map(([Version, Unfinished]) => ({ Version, Unfinished }))
      .toSorted(
        (a, b) => isInForce(b.Version) - isInForce(a.Version) || b.Unfinished - a.Unfinished,
      ),
    IsLowerBound: inexact.unfinished,
  }
}
