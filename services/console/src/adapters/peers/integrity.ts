import { ProblemError } from '@integration-host/client/problem'
import { IntegrationError } from '@integration-host/shared/errors'
import { z } from 'zod'
import { reused } from '../../reused.ts'
import type { IntegrityView } from '../../contracts/services.ts'
import type { ServiceClient } from './service-client.ts'

/** How long a result is reused. For each check the coordinator reads whole tables. */
const REUSED_MS = 30_000

const Integrity = z.object({ violations: z.record(z.string(), z.number()) })

/**
 * Returns the function that reads the coordinator's integrity counts. Concurrent callers share one check.
 *
 * @throws {IntegrationError} `store_unavailable` if the coordinator cannot check now.
 */
export function createIntegrityCheck(
  coordinator: ServiceClient,
  now: () => number,
): () => Promise<IntegrityView> {
  return reused(
    REUSED_MS,
    async () => {
      try {
        const { violations } = await coordinator.read('/integrity', Integrity)
        return { At: new Date(now()).toISOString(), Violations: violations }
      } catch (error) {
        if (!(error instanceof ProblemError)) throw error
        throw new IntegrationError('store_unavailable', 'The coordinator cannot check now', {
          cause: error,
        })
      }
    },
    now,
  )
}
