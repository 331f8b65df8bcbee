/**
 * The query of the list of runs in the address. A person may have typed it, so it can contain values that the
 * coordinator rejects. Such values are shown, so that the person can remove them, but they are not sent.
 */
import type { RunRow } from '../src/contracts/runs.ts'

export type Status = RunRow['Status']

export const STATUSES = [
  'Queued',
  'Running',
  'Retrying',
  'Waiting',
  'Completed',
  'Failed',
  'Cancelled',
  'Undoing',
  'Undone',
  'UndoFailed',
] as const satisfies readonly Status[]

/** The statuses of a run in flight, as on all pages. A waiting run is not in flight. */
export const IN_FLIGHT = [
  'Queued',
  'Running',
  'Retrying',
  'Undoing',
] as const satisfies readonly Status[]
/** The statuses of a run that has failed, forward or while it was undone. */
export const FAILED = ['Failed', 'UndoFailed'] as const satisfies readonly Status[]

/** The maximum number of values of one parameter that the coordinator accepts. */
const MAX_VALUES = 20

const isName = (text: string): boolean =>
  text.length > 0 && text.length <= 200 && !/\p{Cc}/u.test(text) && text.isWellFormed()
/**
 * Returns whether a text is a time in ISO 8601 with an offset. `Date.parse` alone is not sufficient, because it also
 * accepts the 31st of February.
 */
function isTime(text: string): boolean {
  const [, year, month, day] =
    /^(\d{4})-(\d\d)-(\d\d)T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)$/.exec(text) ?? []
  return (
    year !== '0000' &&
    !Number.isNaN(Date.parse(text)) &&
    new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate() >= Number(day)
  )
}
const isTag = (text: string): boolean => /^[^:]+:/.test(text)

interface Rule {
  readonly isValid: (value: string) => boolean
  /** Whether the parameter may be repeated. */
  readonly isList: boolean
}
const one = (isValid: Rule['isValid']): Rule => ({ isValid, isList: false })
const list = (isValid: Rule['isValid']): Rule => ({ isValid, isList: true })

/** The parameters of the address that the list of runs knows. The list ignores any other parameter. */
const RULES: Readonly<Record<string, Rule>> = {
  status: list((value) => (STATUSES as readonly string[]).includes(value)),
  inDoubt: one((value) => value === 'true' || value === 'false'),
  process: one((value) => value.length > 0 && value.length <= 200 && value.isWellFormed()),
  step: list(isName),
  class: list(isName),
  realm: list((value) => /^[A-Za-z0-9_-]{1,64}$/.test(value)),
  children: one((value) => value === 'true' || value === 'false'),
  idPrefix: one(isName),
  waitingFor: list(isName),
  priority: list((value) => value === 'high' || value === 'normal'),
  version: list((value) => /^[A-Za-z0-9][A-Za-z0-9._+-]{0,31}$/.test(value)),
  tag: list(isTag),
  from: one(isTime),
  until: one(isTime),
  since: one(isTime),
  order: one((value) => value === 'created' || value === 'updated'),
}

export interface RunQuery {
  /** The filters and the order, without wrong values. */
  readonly query: URLSearchParams
  /** The values that are not sent, because the coordinator would reject them. */
  readonly wrong: readonly (readonly [name: string, value: string])[]
}

/** Reads the query of the address. */
export function runQuery(text: string): RunQuery {
  const query = new URLSearchParams()
  const wrong: (readonly [string, string])[] = []
  for (const [name, value] of new URLSearchParams(text)) {
    const rule = Object.hasOwn(RULES, name) ? RULES[name] : undefined
    if (rule === undefined) continue
    const count = query.getAll(name).length
    const hasRoom = count < (rule.isList ? MAX_VALUES : 1)
    if (hasRoom && rule.isValid(value)) query.append(name, value)
    else wrong.push([name, value])
  }
  return { query, wrong }
}

/**
 * Returns the query without the order, and without the children, which add runs. The result is empty if it leaves out no
 * run.
 */
export function filtersOf(query: URLSearchParams): URLSearchParams {
  const filters = new URLSearchParams(query)
  filters.delete('order')
  filters.delete('children')
  return filters
}

export interface Removable {
  readonly name: string
  readonly value: string
  /** The query without this filter. */
  readonly rest: URLSearchParams
}

/**
 * For an empty list, the page shows how many runs there would be without each filter. It counts the runs for at most
 * this many filters.
 */
const MAX_REMOVABLE = 5

/**
 * Returns the filters that can be removed one by one, the last one first. The values of `status` are one filter, because
 * a person chooses them together as a group.
 */
export function removableFilters(query: URLSearchParams): readonly Removable[] {
  const found = new Map<string, Removable>()
  for (const [name, value] of filtersOf(query)) {
    const isGroup = name === 'status'
    const rest = new URLSearchParams(query)
    if (isGroup) rest.delete(name)
    else rest.delete(name, value)
    const values = isGroup ? query.getAll(name).join(', ') : value
    found.set(isGroup ? name : JSON.stringify([name, value]), { name, value: values, rest })
  }
  return [...found.values()].toReversed().slice(0, MAX_REMOVABLE)
}
