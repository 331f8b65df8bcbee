/** A condition that the page Now shows, its texts, and the times at which the conditions began. */
import {
  type ConditionName,
  conditions,
  isConditionName,
  sentenceOf,
} from '@integration-host/shared/conditions'
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import type { ConditionAction, ConditionView } from '../contracts/now.ts'

export interface Condition {
  /** The identity of the condition, which stays the same while the condition lasts. */
  readonly key: string
  /** The name of the alert, which is also the name of its section in docs/runbook.md. */
  readonly name: string
  readonly severity: ConditionView['Severity']
  readonly title: string
  readonly detail: string
  readonly remedy: string
  readonly affected: number
  /** The time at which the condition began, in epoch milliseconds, if the services know it. */
  readonly knownSince: number | null
  /** The event at `knownSince`, such as `first failure`, if this event is not the begin of the condition itself. */
  readonly begin?: string
  /** A time at which the condition had already begun, in epoch milliseconds, if Prometheus reports such a time. */
  readonly noLaterThan?: number
  /**
   * The time of the values from which the condition was computed, in epoch milliseconds, if these values are outdated.
   */
  readonly asOf?: number | null
  /** How long the condition must last before it is shown, in milliseconds. Default: 0. */
  readonly forMs?: number
  /** Whether another condition is the cause and says so. Such a condition is not shown, also if its alert fires. */
  readonly isConsequence?: boolean
  /** What the condition is about: the values that each label of an alert of Prometheus may have. */
  readonly labels?: Readonly<Record<string, readonly string[]>>
  readonly page: string | null
  readonly action?: ConditionAction
}

/** What the console has found out about a condition. What is missing comes from the catalogue. */
export type Found = Partial<Omit<Condition, 'name'>> & {
  /** Distinguishes this condition from others of the same name. */
  readonly key?: string
  /** What stands in the sentence of the catalogue in place of the names in braces. */
  readonly values?: Readonly<Record<string, string | number>>
}

/** Returns a condition of the catalogue with what the console has found out about it. */
export const condition = (
  name: ConditionName,
  { key, values = {}, ...found }: Found,
): Condition => ({
  severity: conditions[name].severity,
  title: sentenceOf(name, values),
  detail: '',
  remedy: conditions[name].remedy,
  affected: 1,
  knownSince: null,
  page: null,
  ...found,
  key: key === undefined ? name : `${name} ${key}`,
  name,
})

/** Joins the parts of a detail that are not empty. */
export const joined = (...parts: readonly string[]): string => parts.filter(Boolean).join(' · ')

const SHOWN_NAMES = 3
const SEVERITIES = ['critical', 'warning', 'info'] as const

/** Sorts conditions by severity, and then by the number of affected objects. */
export const mostUrgentFirst = (all: readonly Condition[]): readonly Condition[] =>
  all.toSorted(
    (one, other) =>
      SEVERITIES.indexOf(one.severity) - SEVERITIES.indexOf(other.severity) ||
      other.affected - one.affected,
  )

/** The name by which people know a company: its label, its name at the provider, or else its realm. */
export const companyName = ({ Label, CompanyName, Environment, Name }: CredentialView): string =>
  Label || CompanyName || Environment || Name

/** Returns a list of names as text, such as `A, B, C and 9 more`. */
export function listed(names: readonly string[], total = names.length): string {
  // The one name that would be left out is not longer than the words for it.
  const shown = names.slice(0, total === SHOWN_NAMES + 1 ? total : SHOWN_NAMES)
  const rest = total - shown.length
  if (rest > 0) return `${shown.join(', ')} and ${rest} more`
  const last = shown.at(-1) ?? ''
  return shown.length < 2 ? last : `${shown.slice(0, -1).join(', ')} and ${last}`
}

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
    dated(all, now) {
      const next: typeof standing = new Map()
      const shown: ConditionView[] = []
      for (const found of all) {
        const { key, name, title, knownSince, asOf = null } = found
        const { noLaterThan = now, forMs = 0 } = found
        const since = Math.min(knownSince ?? standing.get(key)?.since ?? now, noLaterThan)
        const isLong = now - since >= forMs
        next.set(key, { title, since, isLong })
        if (isLong)
          shown.push({
            Key: key,
            Name: name,
            InRunbook: isConditionName(name),
            Severity: found.severity,
            Title: title,
            Detail: found.detail,
            Remedy: found.remedy,
            Affected: found.affected,
            Since: new Date(since).toISOString(),
            Begin: found.begin ?? null,
            AsOf: asOf === null ? null : new Date(asOf).toISOString(),
            Page: found.page,
            Action: found.action ?? null,
          })
      }
      for (const [key, { title, isLong }] of standing)
        if (isLong && next.get(key)?.isLong !== true) lastEnded = { title, at: now }
      standing = next
      return shown
    },
  }
}
