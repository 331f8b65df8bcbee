import type { ConditionView } from '../contracts/now.ts'
import type { Condition } from './conditions.ts'

export interface ConditionTimes {
  /** Adds to each condition the time at which it began. */
  dated(conditions: readonly Condition[], now: number): readonly ConditionView[]
  /** The last condition that ended; `null` if none has ended yet. */
  readonly lastEnded: { readonly title: string; readonly at: number } | null
}

/** Stores the time at which each condition began, and the last condition that ended. */
export function createConditionTimes(): ConditionTimes {
  let standing = new Map<string, { readonly title: string; readonly since: number }>()
  let lastEnded: ConditionTimes['lastEnded'] = null
  return {
    get lastEnded() {
      return lastEnded
    },
    dated(conditions, now) {
      const next = new Map(
        conditions.map(({ key, title, knownSince }) => [
          key,
          { title, since: knownSince ?? standing.get(key)?.since ?? now },
        ]),
      )
      for (const [key, { title }] of standing) if (!next.has(key)) lastEnded = { title, at: now }
      standing = next
      return conditions.map(
        ({ key, name, severity, title, detail, remedy, affected, page }): ConditionView => ({
          Key: key,
          Name: name,
          Severity: severity,
          Title: title,
          Detail: detail,
          Remedy: remedy,
          Affected: affected,
          Since: new Date(next.get(key)?.since ?? now).toISOString(),
          Page: page,
        }),
      )
    },
  }
}
