import type { Audit } from '../run/audit.ts'
import type { PauseStore } from '../run/pause.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import type { Auditor } from './auditor.ts'
import { inBatches, type Periodic, startPolling } from './polling.ts'
import { delayMsOf, type TransitionPublisher } from './transition-publisher.ts'
import type { Worker } from './worker.ts'

export interface LeaseRecoveryDeps extends Periodic {
  readonly source: Pick<TransactionSource, 'recoverExpiredLeases'>
  readonly pauses: Pick<PauseStore, 'paused'>
  readonly publisher: Pick<TransitionPublisher, 'publishStep'>
  readonly worker: Pick<Worker, 'setPaused'>
  readonly auditor: Pick<Auditor, 'audit'>
  readonly onAudit: (audit: Audit) => Promise<void>
  /** Called with the number of runs whose leases were recovered. */
  readonly onRecovered: (count: number) => void
}

/** Makes at most `size` runs of lost coordinators due again, and publishes their messages. Resolves with their number. */
export async function recoverLeases(
  {
    source,
    publisher,
    log,
    onRecovered,
  }: Pick<LeaseRecoveryDeps, 'source' | 'publisher' | 'log' | 'onRecovered'>,
  size: number,
): Promise<number> {
  const recovered = await source.recoverExpiredLeases(size)
  if (recovered.length > 0) {
    log.warn({ count: recovered.length }, 'recovered expired leases of a lost coordinator')
    onRecovered(recovered.length)
  }
  await Promise.all(recovered.map((run) => publisher.publishStep(run, delayMsOf(run))))
  return recovered.length
}

/**
 * The periodic task that runs every `REMOTE_PULL_SECONDS`. It recovers the expired leases of lost coordinators, applies
 * pauses that were requested at other replicas, and audits the tables.
 */
export function startLeaseRecovery(deps: LeaseRecoveryDeps): AsyncDisposable {
  const { pauses, worker, log } = deps

  async function poll(): Promise<boolean> {
    worker.setPaused(await pauses.paused())
    await inBatches((size) => recoverLeases(deps, size))
    const audit = await deps.auditor.audit()
    await deps.onAudit(audit)
    const isOk = Object.values(audit.violations).every((count) => count === 0)
    if (!isOk)
      log.error(
        { violations: audit.violations, unknownProcesses: audit.unknownProcesses },
        'audit of the tables Order_Header and Order_Item found violations',
      )
    return true
  }

  return startPolling({ ...deps, task: 'lease recovery', poll })
}
