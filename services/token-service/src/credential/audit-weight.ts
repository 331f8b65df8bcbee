/**
 * Which audit entries are kept longer than others.
 *
 * The audit log keeps a number of newest entries, so a caller that causes many of them removes older ones. Entries of
 * weight say who got access to what. They are copied to a log of their own, which only they can fill: other entries
 * cannot remove them from it.
 */
import type { AuditFact } from '@integration-host/shared/contracts/audit'

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
