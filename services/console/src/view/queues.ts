/**
 * The queues of a process: the due runs of its steps, computed from the metrics and the counts that the console has
 * read.
 */
import { type Installation, responding } from './installation.ts'
import type { Measured } from './metric-query.ts'

export interface Queues {
  readonly Queues: {
    Step: string
    Due: number
    OldestSeconds: number
    P95Seconds: number | null
  }[]
  readonly DeadLetters: number
}

/**
 * Returns what the coordinator has counted for a process. `times` contains, for each step, the 95th percentile of the
 * duration of an attempt.
 */
export function queuesOf(
  installation: Installation,
  { Process, Steps }: { readonly Process: string; readonly Steps: readonly string[] },
  times: readonly Measured[],
): Queues {
  // Every replica reports the same counts of the shared tables, so the counts of one replica are
  // sufficient.
  const [coordinator] = responding(installation, 'coordinator')
  const sampleOf = (name: string, step?: string): number =>
    (coordinator?.samples?.get(name) ?? [])
      .filter(
        ({ labels }) =>
          labels['process'] === Process && (step === undefined || labels['step'] === step),
      )
      .reduce((sum, { value }) => sum + value, 0)
  return {
    Queues: Steps.map((step) => ({
      Step: step,
      Due: Math.round(sampleOf('coordinator_due_runs', step)),
      OldestSeconds: sampleOf('coordinator_oldest_due_seconds', step),
      P95Seconds:
        times.find(({ labels }) => labels[0] === Process && labels[1] === step)?.value ?? null,
    })),
    DeadLetters: Math.round(sampleOf('coordinator_dead_messages')),
  }
}
