import type { ActionView } from '@integration-host/shared/contracts/action'
import type { AuditEntry } from '@integration-host/shared/contracts/audit'
import type { ChangeView } from '../contracts/now.ts'
import { activityOfAction, activityOfAudit } from './activity.ts'

const MAX_CHANGES = 12

/** Returns the newest entries of both logs as sentences, the newest first. Routine refreshes are left out. */
export function changesOf(
  actions: readonly ActionView[],
  audit: readonly AuditEntry[],
): readonly ChangeView[] {
  // Failed refreshes are left out, because they are retried. A refresh that fails for good has an entry `faulted`.
  const notable = audit.filter(({ What }) => What !== 'refreshed' && What !== 'refresh_failed')
  const changes = [...actions.map(activityOfAction), ...notable.map(activityOfAudit)].flatMap(
    (entry): readonly ChangeView[] => {
      if (entry === null) return []
      const { Key, At, Who, What, Target, Outcome, Reason } = entry
      const what = [What, Target, Outcome === null ? null : `(${Outcome})`]
      return [{ Key, At, Who, What: what.filter((part) => part !== null).join(' '), Reason }]
    },
  )
  const newestFirst = changes.toSorted((one, other) => other.At.localeCompare(one.At))
  return withoutRepetitions(newestFirst).slice(0, MAX_CHANGES)
}

/**
 * Replaces a series of equal entries with its newest entry and the number of entries in the series, because an outage
 * often repeats an entry.
 */
function withoutRepetitions(changes: readonly ChangeView[]): readonly ChangeView[] {
  const groups: [ChangeView, number][] = []
  for (const change of changes) {
    const last = groups.at(-1)
    if (
      last?.[0].Who === change.Who &&
      last[0].What === change.What &&
      last[0].Reason === change.Reason
    )
      last[1] += 1
    else groups.push([change, 1])
  }
  return groups.map(([change, count]) =>
    count === 1 ? change : { ...change, What: `${change.What}, ${count} times` },
  )
}
