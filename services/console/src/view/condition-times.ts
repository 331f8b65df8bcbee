import { isConditionName } from '@integration-host/shared/conditions'
import type { ConditionView } from '../contracts/now.ts'
import type { Condition } from './condition.ts'

export interface ConditionTimes {
  /** Returns the conditions that have lasted long enough, each with the time at which it began. */
  dated(conditions: readonly Condition[], now: number): readonly ConditionView[]
  /** The last condition that ended; `null` if none has ended yet. */
  readonly lastEnded: { readonly title: string; readonly at: number } | null
}

/** Stores the time at which each condition began, and the last condition that ended. */
export function createConditionTimes(): ConditionTimes {
  /**
   * The conditions that the last call of `dated` received. `isLong` is false for a condition that has not lasted long
   * enough.
   */
  let standing = new Map<string, { title: string; since: number; isLong: boolean }>()
  let lastEnded: ConditionTimes['lastEnded'] = null
  return {
    get lastEnded() {
      return lastEnded
    },
    dated(conditions, now) {
      const next: typeof standing = new Map()
      const shown: ConditionView[] = []
      for (const condition of conditions) {
        const { key, name, title, knownSince, asOf = null } = condition
        const { noLaterThan = now, forMs = 0 } = condition
        const since = Math.min(knownSince ?? standing.get(key)?.since ?? now, noLaterThan)
        const isLong = now - since >= forMs
        next.set(key, { title, since, isLong })
        if (isLong)
          shown.push({
            Key: key,
            Name: name,
            InRunbook: isConditionName(name),
            Severity: condition.severity,
            Title: title,
            Detail: condition.detail,
            Remedy: condition.remedy,
            Affected: condition.affected,
            Since: new Date(since).toISOString(),
            Begin: condition.begin ?? null,
            AsOf: asOf === null ? null : new Date(asOf).toISOString(),
            Page: condition.page,
            Action: condition.action ?? null,
          })
      }
      for (const [key, { title, isLong }] of standing)
        if (isLong && next.get(key)?.isLong !== true) lastEnded = { title, at: now }
      standing = next
      return shown
    },
  }
}
