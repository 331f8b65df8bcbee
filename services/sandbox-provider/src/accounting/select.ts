/** Selects and sorts the objects of a query. */
import { listEntities } from '@integration-host/shared/contracts/provider-event'
import type { Body } from './posted-entities.ts'
import type { Condition, Query } from './query.ts'

/** Returns the objects that match the conditions, in the order of the query. Paging is not applied here. */
export function selected(
  all: readonly Body[],
  entity: string,
  { conditions, order }: Pick<Query, 'conditions' | 'order'>,
): readonly Body[] {
  const hidesInactive =
    listEntities.has(entity) && !conditions.some(({ member }) => /^active$/i.test(member))
  const found = all.filter(
    (one) =>
      conditions.every((condition) => matches(one, condition)) &&
      !(hidesInactive && one['Active'] === false),
  )
  if (order.length === 0) return found
  return found.toSorted((one, other) => {
    for (const { member, isDescending } of order) {
      const difference = compare(textAt(one, member) ?? '', textAt(other, member) ?? '')
      if (difference !== 0) return isDescending ? -difference : difference
    }
    return 0
  })
}

/**
 * Returns an object with the given members only; `null` returns the whole object. A path such as `MetaData.CreateTime`
 * returns the member to which its first name belongs.
 */
export function projected(one: Body, members: Query['members']): Body {
  if (members === null) return one
  const names = new Set(members.map((path) => path.toLowerCase().split('.')[0]))
  const found = Object.entries(one).filter(([name]) => names.has(name.toLowerCase()))
  return { ...Object.fromEntries(found), domain: 'QBO', sparse: true }
}

function matches(one: Body, { member, operator, values }: Condition): boolean {
  const text = textAt(one, member)
  if (text === null) return false
  const [first = ''] = values
  switch (operator) {
    case '=':
      return compare(text, first) === 0
    case 'in':
      return values.some((value) => compare(text, value) === 0)
    case '<':
      return compare(text, first) < 0
    case '>':
      return compare(text, first) > 0
    case '<=':
      return compare(text, first) <= 0
    case '>=':
      return compare(text, first) >= 0
    case 'like':
      return isLike(text.toLowerCase(), first.toLowerCase())
  }
}

/**
 * Returns a member of an object as a string; `null` if there is no such member. Names of members are case-insensitive.
 */
function textAt(one: Body, path: string): string | null {
  let value: unknown = one
  for (const name of path.toLowerCase().split('.')) {
    if (typeof value !== 'object' || value === null) return null
    value = Object.entries(value).find(([key]) => key.toLowerCase() === name)?.[1]
  }
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
    ? String(value)
    : null
}

const NUMBER = /^-?\d+(?:\.\d+)?$/
const TIME = /^\d{4}-\d\d-\d\d(?:T[\d:.]+(?:Z|[+-]\d\d:?\d\d)?)?$/

/** Compares numbers numerically, times chronologically, and other strings case-insensitively. */
function compare(one: string, other: string): number {
  if (NUMBER.test(one) && NUMBER.test(other)) return Number(one) - Number(other)
  if (TIME.test(one) && TIME.test(other)) {
    const difference = Date.parse(one) - Date.parse(other)
    if (!Number.isNaN(difference)) return difference
  }
  const [a, b] = [one.toLowerCase(), other.toLowerCase()]
  return a < b ? -1 : a > b ? 1 : 0
}

/**
 * Returns whether a text matches a pattern, in which `%` matches any characters. The time is linear for each `%`, so no
 * pattern can block the process.
 */
function isLike(text: string, pattern: string): boolean {
  const parts = pattern.split('%')
  const [start = '', ...others] = parts
  const end = others.pop()
  if (end === undefined) return text === start
  if (!text.startsWith(start)) return false
  let at = start.length
  for (const part of others) {
    const found = text.indexOf(part, at)
    if (found === -1) return false
    at = found + part.length
  }
  return text.length - end.length >= at && text.endsWith(end)
}
