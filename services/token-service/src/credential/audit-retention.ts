/**
 * Which audit entries are kept longer than others, and how many of them a key can cause on a day.
 *
 * The audit log keeps a number of newest entries, so a caller that causes many of them removes older ones. Entries of
 * weight say who got access to what. They are copied to a log of their own, which only they can fill: other entries
 * cannot remove them from it.
 */
import type { AuditFact } from '@integration-host/shared/contracts/audit'
import { IntegrationError } from '@integration-host/shared/errors'
import type { CredentialStore } from './credential-store.ts'

/** How long an entry of weight is kept at least, whatever the number of entries. */
export const KEPT_MS = 90 * 86_400_000

/** The actions that any number of requests can cause, or that happen by themselves to every company. */
const FREQUENT: readonly AuditFact['What'][] = [
  'refreshed',
  'refresh_failed',
  'expiring',
  'handed_out',
  'labelled',
  'link_created',
  'link_used',
  'link_withdrawn',
]

/** Returns whether an entry has weight. A code exchange that failed has not, and its entry has version 0. */
export const hasWeight = ({ What, Version }: AuditFact): boolean =>
  !FREQUENT.includes(What) && !(What === 'granted' && Version === 0)

/**
 * How many actions of weight one key can cause on a day (UTC). Their entries are kept for 90 days whatever their number,
 * so that number must have a limit. An export, import or adoption counts once for each credential.
 */
export const ACTIONS_PER_DAY = 10_000

const DAY_MS = 86_400_000

/**
 * Counts `count` actions of a key before they are executed.
 *
 * @throws {IntegrationError} `daily_actions_used` if the key has too few left, in which case none is counted;
 * `store_unavailable`.
 */
export type TakeActions = (keyId: string, count: number) => Promise<void>

export const createActionQuota =
  (store: Pick<CredentialStore, 'takeActions'>, clock: () => number): TakeActions =>
  async (keyId, count) => {
    const now = clock()
    const day = Math.floor(now / DAY_MS)
    if (await store.takeActions(keyId, day, count, ACTIONS_PER_DAY)) return
    throw new IntegrationError(
      'daily_actions_used',
      `the key ${keyId} may cause ${ACTIONS_PER_DAY} actions a day that the audit log keeps, and this request needs ${count}`,
      { retryAfterSeconds: Math.ceil(((day + 1) * DAY_MS - now) / 1_000) },
    )
  }
