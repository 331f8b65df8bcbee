import type { ProcessView } from '../contracts/processes.ts'

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
