/** The queues of a process: the due runs of its steps and its dead letters, as the coordinator has counted them. */
import { coordinatorCounts, type Installation } from './installation.ts'

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
