/** The texts about processes that several pages show. */
import type { ProcessesView, ProcessView } from '../src/contracts/processes.ts'
import type { NowView } from '../src/contracts/now.ts'
import { counted, numberText } from '../src/isomorphic/texts.ts'
import type { Status } from './run-query.ts'

type Process = ProcessesView['Processes'][number]
type Schedule = ProcessesView['Schedules'][number]

/** Returns what starts the runs of a process. Clients can queue runs of every process that is not built in. */
export function startsText(
  { On, BuiltIn }: Pick<Process, 'On' | 'BuiltIn'>,
  schedules: readonly Schedule[],
): string {
  const active = schedules.filter(({ RemovedAt }) => RemovedAt === null)
  const starts = [
    ...On,
    ...(active.length === 1
      ? [`the schedule ${active[0]?.Name ?? ''}`]
      : active.length > 1
        ? [counted(active.length, 'schedule')]
        : []),
    ...(BuiltIn ? [] : ['requests']),
  ]
  return starts.length === 0 ? 'the coordinator' : starts.join(', ')
}

/** Returns how many runs of a process ended in the last hour, and how many of these failed. */
export function failureRate({ Done, Failed }: NowView['RunsOf'][number]['LastHour']): string {
  const total = Done + Failed
  if (total === 0) return 'no run ended'
  if (Failed === 0) return `${counted(total, 'run')} ended, none failed`
  const percent = Math.max(1, Math.round((100 * Failed) / total))
  return `${numberText(Failed)} of ${counted(total, 'run')} failed (${percent} %)`
}

/**
 * Returns the address of the list of runs, filtered by process and by these statuses of the runs. Children are in the
 * list, because the numbers of a process count them; a process may have no other runs.
 */
export const runsOf = (process: string, statuses: readonly Status[]): string =>
  `/runs?${new URLSearchParams([
    ['process', process],
    ...statuses.map((status) => ['status', status]),
    ['children', 'true'],
  ]).toString()}`

type LimitedTarget = NonNullable<ProcessView['Targets']>[number]

/** A target with the limits of its calls, and the processes whose calls are counted together. */
export interface TargetRow extends Pick<LimitedTarget, 'Name' | 'PerSecond' | 'Concurrent'> {
  readonly processes: readonly string[]
}

/** Returns the targets of the processes that have limits. A target that several processes share is one row. */
export function limitedTargets(
  processes: readonly Pick<ProcessView, 'Process' | 'Targets'>[],
): readonly TargetRow[] {
  const all = processes.flatMap(({ Process, Targets = [] }) =>
    Targets.map((target) => ({ ...target, Process })),
  )
  const rows = Map.groupBy(all, ({ Process, Name, Shared }) =>
    JSON.stringify(Shared ? [Name] : [Name, Process]),
  )
  return [...rows.values()]
    .flatMap(([first, ...others]) =>
      first === undefined
        ? []
        : [
            {
              Name: first.Name,
              PerSecond: first.PerSecond,
              Concurrent: first.Concurrent,
              processes: [...new Set([first, ...others].map(({ Process }) => Process))],
            },
          ],
    )
    .toSorted((a, b) => (a.Name < b.Name ? -1 : a.Name > b.Name ? 1 : 0))
}
