import type { Pauses } from '../../transaction/pause.ts'
import type { Run } from '../../transaction/run.ts'
import { isOver } from '../../transaction/status.ts'
import { type Audit, type DueRuns, STUCK_MS } from '../../transaction/transaction-source.ts'
import type { StoredRun } from '../../transaction/transitions.ts'

/** Counts runs by status, due runs by step, and violations of the invariants that `Audit` names. `now` is epoch ms. */
export function auditRuns(
  all: readonly StoredRun[],
  processes: readonly string[],
  paused: Pauses,
  now: number,
): Audit {
  const runs = all.filter(({ header }) => header.PurgedAt === null)
  const runsByStatus: Partial<Record<Run['Status'], number>> = {}
  const dueBySteps = new Map<string, DueRuns>()
  const isActive = ({ header }: StoredRun): boolean => !isOver(header.Status)
  const hasItem = ({ header, items }: StoredRun): boolean =>
    items.some(({ StepName, Status }) => StepName === header.StepName && Status === 'Completed')
  for (const { header, lease } of runs) {
    runsByStatus[header.Status] = (runsByStatus[header.Status] ?? 0) + 1
    const isRunnable = ['Queued', 'Running', 'Retrying'].includes(header.Status)
    const dueMs = now - Math.max(Date.parse(header.NextAttemptAt ?? ''), lease?.until ?? 0)
    if (!isRunnable || !(dueMs >= 0)) continue
    const { Process: process, StepName: step } = header
    const key = JSON.stringify([process, step])
    const known = dueBySteps.get(key) ?? { due: 0, oldestMs: 0 }
    const oldestMs = Math.max(known.oldestMs, dueMs)
    dueBySteps.set(key, { process, step, due: known.due + 1, oldestMs })
  }
  const count = (test: (run: StoredRun) => boolean): number => runs.filter(test).length
  return {
    runsByStatus,
    dueBySteps: [...dueBySteps.values()],
    violations: {
      completedWithoutItem: count((run) => run.header.Status === 'Completed' && !hasItem(run)),
      itemAhead: count((run) => isActive(run) && hasItem(run)),
      orphanItems: 0,
      stuck: count(
        (run) =>
          isActive(run) && run.nextSweepAt < now - STUCK_MS && !paused.has(run.header.Process),
      ),
      unknownProcess: count((run) => isActive(run) && !processes.includes(run.header.Process)),
    },
  }
}
