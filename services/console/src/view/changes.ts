import type { ActionView } from '@integration-host/shared/contracts/action'
import type { AuditEntry } from '@integration-host/shared/contracts/audit'
import type { ChangeView } from '../contracts/now.ts'

const MAX_CHANGES = 12

const AUDIT_TEXTS: Readonly<Partial<Record<AuditEntry['What'], string>>> = {
  granted: 'connected',
  faulted: 'failed to refresh',
  expiring: 'ends soon:',
  removed: 'removed',
  exported: 'exported',
  imported: 'imported',
  adopted: 'adopted',
  labelled: 'labelled',
  link_created: 'created a connect link for',
  link_used: 'used the connect link of',
  link_withdrawn: 'withdrew the connect link of',
  keys_rotated: 'rotated the keys of the credentials',
}

/** Returns the newest entries of both logs as sentences, the newest first. Routine refreshes are left out. */
export function changesOf(
  actions: readonly ActionView[],
  audit: readonly AuditEntry[],
): readonly ChangeView[] {
  const fromActions = actions.map((action): ChangeView => ({
    Key: `action ${action.ID}`,
    At: action.At,
    Who: action.Person ?? action.KeyID,
    What: [
      action.Action.replaceAll('_', ' '),
      action.TransactionID === null ? action.Process : `${action.Process}/${action.TransactionID}`,
      action.Outcome === 'done' ? '' : `(${action.Outcome})`,
    ]
      .filter(Boolean)
      .join(' '),
    Reason: action.Reason,
  }))
  const fromAudit = audit.flatMap((entry): readonly ChangeView[] => {
    const text = AUDIT_TEXTS[entry.What]
    if (text === undefined) return []
    const outcome = entry.Outcome === 'ok' ? '' : ` (${entry.Outcome})`
    const what = `${text} ${entry.Name}`.trim() + outcome
    return [{ Key: `audit ${entry.Seq}`, At: entry.At, Who: entry.Who, What: what, Reason: null }]
  })
  const newestFirst = [...fromActions, ...fromAudit].toSorted((one, other) =>
    other.At.localeCompare(one.At),
  )
  return withoutRepetitions(newestFirst).slice(0, MAX_CHANGES)
}

/** Replaces successive equal entries by the newest one with their number, because an outage repeats one entry often. */
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
