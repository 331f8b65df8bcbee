import type { ActionView } from '@integration-host/shared/contracts/operations'
import type { AuditEntry } from '@integration-host/shared/contracts/audit'
import type { ActivityEntry } from '../contracts/activity.ts'
import type { ChangeView } from '../contracts/now.ts'
import { activityOfAction, activityOfAudit, textOfActivity, withCompanyName } from './activity.ts'

const MAX_CHANGES = 12

/**
 * Returns whether the list of changes shows an entry of the audit log. Failed refreshes are left out, because they are
 * retried. A refresh that fails because the grant was rejected has an entry `faulted`.
 */
export const isNotable = ({ What }: AuditEntry): boolean =>
  What !== 'refreshed' && What !== 'refresh_failed' && What !== 'handed_out'

/** Returns whether an action only reads data. It is shown on the page Activity, but has changed nothing. */
const isRead = (action: string): boolean => action === 'export' || action.startsWith('read_')

/**
 * Returns the newest entries of both logs, the newest first. `names` has the names of the companies in the audit log, by
 * realm.
 */
export function changesOf(
  actions: readonly ActionView[],
  audit: readonly AuditEntry[],
  names: Readonly<Record<string, string>>,
): readonly ChangeView[] {
  const changes = [
    ...actions.filter(({ Action }) => !isRead(Action)).map(activityOfAction),
    ...audit.filter(isNotable).map(activityOfAudit),
  ].flatMap((entry) => (entry === null ? [] : [withCompanyName(entry, names)]))
  const newestFirst = changes.toSorted((one, other) => other.At.localeCompare(one.At))
  return withoutRepetitions(newestFirst).slice(0, MAX_CHANGES)
}

/** Replaces a series of equal entries with its newest entry, because an outage often repeats an entry. */
function withoutRepetitions(changes: readonly ActivityEntry[]): readonly ChangeView[] {
  const groups: [ActivityEntry, number][] = []
  for (const change of changes) {
    const last = groups.at(-1)
    if (
      last?.[0].Who === change.Who &&
      textOfActivity(last[0]) === textOfActivity(change) &&
      last[0].Reason === change.Reason
    )
      last[1] += 1
    else groups.push([change, 1])
  }
  return groups.map(([change, Times]) => ({ ...change, Times }))
}
