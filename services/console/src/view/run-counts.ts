/** The numbers that the list of runs shows for each group of runs, from the coordinator's counts. */
import { headerStatuses } from '@integration-host/shared/contracts/transaction'
import type { RunsView } from '../contracts/runs.ts'
import type { ProcessState } from './installation.ts'

/**
 * Returns how many runs of one process are unfinished or have ended badly. Without a process, all processes count.
 * Returns `null` before the first count.
 */
export function runCounts(
  processes: readonly ProcessState[] | null,
  name: string | undefined,
): RunsView['Counts'] {
  const counted = (processes ?? []).filter((process) => name === undefined || process.name === name)
  const groups = counted.flatMap((process) => process.groups ?? [])
  if (counted.every((process) => process.groups === null)) return null
  const Statuses: NonNullable<RunsView['Counts']>['Statuses'] = {}
  for (const { status, count } of groups) {
    const known = headerStatuses.find((one) => one === status)
    if (known !== undefined) Statuses[known] = (Statuses[known] ?? 0) + count
  }
  return { Statuses, InDoubt: groups.reduce((sum, { inDoubt }) => sum + inDoubt, 0) }
}
