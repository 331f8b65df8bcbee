/** The numbers of runs that all pages show, from the coordinator's counts and the transitions since then. */
import { credentialName } from '@integration-host/shared/contracts/realm'
import type { RunCounts } from '../contracts/now.ts'
import { asksAgain } from '../isomorphic/texts.ts'
import { coordinatorCounts, type Installation, type ProcessState } from './installation.ts'

/**
 * Returns how many runs of one process are in each group. Without a process, all processes count. Returns `null` before
 * the first count.
 */
export function runCounts(
  processes: readonly ProcessState[] | null,
  name?: string,
): RunCounts | null {
  const counted = (processes ?? []).filter((process) => name === undefined || process.name === name)
  if (counted.every((process) => process.groups === null)) return null
  const groups = counted.flatMap((process) => process.groups ?? [])
  const sum = (...statuses: readonly string[]): number =>
    groups.reduce((total, { status, count }) => total + (statuses.includes(status) ? count : 0), 0)
  return {
    InFlight: sum('Queued', 'Running', 'Retrying', 'Undoing'),
    Retrying: sum('Retrying'),
    Asking: groups.reduce(
      (total, { status: Status, errorClass: ErrorClass, count }) =>
        total + (asksAgain({ Status, ErrorClass }) ? count : 0),
      0,
    ),
    Waiting: sum('Waiting'),
    Failed: sum('Failed', 'UndoFailed'),
    Cancelled: sum('Cancelled'),
    InDoubt: groups.reduce((total, { inDoubt }) => total + inDoubt, 0),
  }
}

/** Returns how many runs wait for a company: for its credential or its resume; `null` before the first count. */
export function waitingRuns(
  processes: readonly ProcessState[] | null,
  realm: string,
): number | null {
  if (runCounts(processes) === null) return null
  const waits: readonly (string | null)[] = [credentialName(realm), `paused:${realm}`]
  return (processes ?? [])
    .flatMap(({ groups }) => groups ?? [])
    .reduce((sum, { waitingFor, count }) => sum + (waits.includes(waitingFor) ? count : 0), 0)
}

/** The due runs of the steps of a process, and its dead letters, as the coordinator has counted them. */
export interface Queues {
  readonly Queues: { Step: string; Due: number; OldestSeconds: number }[]
  readonly DeadLetters: number
}

export function queuesOf(
  installation: Installation,
  { Process, Steps }: { readonly Process: string; readonly Steps: readonly string[] },
): Queues {
  const counts = coordinatorCounts(installation)
  const due = counts?.Due.filter((one) => one.Process === Process) ?? []
  return {
    Queues: Steps.map((step) => {
      const { Count = 0, OldestSeconds = 0 } = due.find(({ Step }) => Step === step) ?? {}
      return { Step: step, Due: Count, OldestSeconds }
    }),
    DeadLetters: counts?.DeadLetters[Process] ?? 0,
  }
}
