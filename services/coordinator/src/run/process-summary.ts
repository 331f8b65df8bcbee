import type { Audit, EndedGroup, RunGroup, UnfinishedGroup } from './audit.ts'

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
