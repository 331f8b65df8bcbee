import type { Audit } from '../run/audit.ts'
import type { PauseStore } from '../run/pause.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import type { PausedNames } from './gate.ts'
import type { StepQueue } from './step-queue.ts'

export interface AuditorDeps {
  readonly source: Pick<TransactionSource, 'audit'>
  readonly pauses: Pick<PauseStore, 'paused'>
  readonly queue: Pick<StepQueue, 'consumers'>
  /** The names of the processes that are loaded. */
  readonly processes: readonly string[]
  /** Whether this coordinator reaches the internet. */
  readonly isOnline: () => boolean
  /** Returns epoch ms. */
  readonly now: () => number
}

/** The time between two checks for the same missing queue, because the broker logs every such check. */
const RECHECK_MS = 300_000

export type Auditor = ReturnType<typeof createAuditor>

/** Audits the source, and detects which processes run only at other coordinators. */
export function createAuditor(deps: AuditorDeps) {
  const { source, pauses, queue, processes, isOnline, now } = deps
  let elsewhere: ReadonlySet<string> = new Set()
  const recheckAt = new Map<string, number>()

  /**
   * Whether another coordinator runs the step. This is the case if the queue of the step has a consumer. While the
   * process is paused or waits for the internet, no coordinator consumes the queue, so the existence of the queue
   * suffices.
   */
  async function isRun(process: string, step: string, paused: PausedNames): Promise<boolean> {
    const where = `${process}.${step}`
    if ((recheckAt.get(where) ?? 0) > now()) return false
    const consumers = await queue.consumers(process, step)
    if (consumers === null) recheckAt.set(where, now() + RECHECK_MS)
    return consumers !== null && (consumers > 0 || paused.has(process) || !isOnline())
  }

  /**
   * Any consumer belongs to another replica, because this replica consumes no steps of a process that it has not
   * loaded.
   */
  async function runElsewhere({ unfinished }: Audit): Promise<ReadonlySet<string>> {
    const paused = await pauses.paused()
    const found = new Set<string>()
    for (const { Process, StepName } of unfinished)
      if (!processes.includes(Process) && !found.has(Process) && StepName !== '')
        if (await isRun(Process, StepName, paused)) found.add(Process)
    return found
  }

  return {
    /** Audits the source. The result lists a process as not loaded only if no coordinator runs the process. */
    async audit(): Promise<Audit> {
      const audit = await source.audit(processes)
      elsewhere = await runElsewhere(audit)
      const unknown = Object.entries(audit.unknownProcesses).filter(
        ([name]) => !elsewhere.has(name),
      )
      const unknownProcess = unknown.reduce((sum, [, count]) => sum + count, 0)
      return {
        ...audit,
        unknownProcesses: Object.fromEntries(unknown),
        violations: { ...audit.violations, unknownProcess },
      }
    },
    /** Whether another coordinator ran the process at the time of the last audit. */
    runsElsewhere: (process: string): boolean => elsewhere.has(process),
  }
}
