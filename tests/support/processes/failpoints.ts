/** Services that kill themselves with SIGKILL at a named point of their protocol, for tests of crashes. */
import type { ServiceProcess } from '../system.ts'

/**
 * Path of the coordinator's entry with failpoints and test settings, which also serves as the plain service.
 * Its head comment lists the settings. `DIES_AT` names the failpoint, `DIES_WITH` the transaction.
 */
export const coordinatorWithFailpoints = 'test-support/failpoint-main.ts'

/** The token-service's entry with failpoints. It needs `DIES_AT` (a failpoint) or `DIES_OF` (a defect). */
export const tokenServiceWithFailpoints = 'test-support/failpoint-main.ts'

/** Resolves when the process has reached the failpoint and has ended. */
export async function diedAt(service: ServiceProcess, failpoint: string): Promise<void> {
  await service.waitForOutput(new RegExp(`^died ${failpoint}$`, 'm'))
  await service.stop('SIGKILL')
}
