/**
 * How many actions of weight (audit-weight.ts) one key can cause on a day. Their audit entries are kept for 90 days
 * whatever their number, so that number must have a limit.
 */
import { IntegrationError } from '@integration-host/shared/errors'
import type { CredentialStore } from './credential-store.ts'

/** The limit for each key and day (UTC). An export, import or adoption counts once for each credential. */
export const ACTIONS_PER_DAY = 10_000

const DAY_MS = 86_400_000

export interface ActionQuota {
  /**
   * Counts `count` actions of a key before they are executed.
   *
   * @throws {IntegrationError} `daily_actions_used` if the key has too few left, in which case none is counted;
   * `store_unavailable`.
   */
  take(keyId: string, count: number): Promise<void>
}

export function createActionQuota(deps: {
  readonly store: Pick<CredentialStore, 'takeActions'>
  readonly now: () => number
}): ActionQuota {
  return {
    async take(keyId, count) {
      const now = deps.now()
      const day = Math.floor(now / DAY_MS)
      if (await deps.store.takeActions(keyId, day, count, ACTIONS_PER_DAY)) return
      throw new IntegrationError(
        'daily_actions_used',
        `the key ${keyId} may cause ${ACTIONS_PER_DAY} actions a day that the audit log keeps, and this request needs ${count}`,
        { retryAfterSeconds: Math.ceil(((day + 1) * DAY_MS - now) / 1_000) },
      )
    },
  }
}
