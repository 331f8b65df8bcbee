import type { Audit, RunGroup } from './audit.ts'

/** The counts of the latest audit for one process, without completed runs. */
export interface ProcessSummary {
  readonly At: string
  readonly Process: string
  readonly Unfinished: readonly Omit<RunGroup, 'Process'>[]
  /** Failed and cancelled runs. */
  readonly EndedBadly: readonly Omit<RunGroup, 'Process' | 'WaitingFor'>[]
  /** Whether there may be more runs than were counted. */
  readonly IsLowerBound: boolean
}

/** The maximum number of groups of each kind. The largest groups are kept. */
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
