/** Services that kill themselves with SIGKILL at a named point of their protocol. Crash tests use these services. */
import type { ServiceProcess } from '../system.ts'

/**
 * Path of the coordinator's entry module with failpoints and test settings. Without a failpoint it behaves like the
 * normal service. The comment at the head of that module lists the settings. `DIES_AT` names the failpoint, and
 * `DIES_WITH` the transaction.
 */
export const coordinatorWithFailpoints = 'test-support/failpoint-main.ts'

/**
 * Path of token-service's entry module with failpoints. The module needs `DIES_AT` (a failpoint) or `DIES_OF` (a
 * defect).
 */
export const tokenServiceWithFailpoints = 'test-support/failpoint-main.ts'

/** Path of the webhook receiver's entry module with failpoints. The module needs `DIES_AT` (a failpoint). */
export const webhookReceiverWithFailpoints = 'test-support/failpoint-main.ts'

/** Resolves when the process has ended after reaching the failpoint. */
export async function diedAt(service: ServiceProcess, failpoint: string): Promise<void> {
  await service.waitForOutput(new RegExp(`^died ${failpoint}$`, 'm'))
  await service.stop('SIGKILL')
}
