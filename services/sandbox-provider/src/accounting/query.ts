/**
 * Parses the queries of Intuit's language, and selects and sorts the objects of a query: `select * from Invoice where TxnDate >= '2026-01-01' orderby TxnDate desc startposition 1
 * maxresults 10`. Conditions can only be joined by AND. The language has no OR, JOIN or GROUP BY. Intuit's documentation
 * says that queries return whole objects only; users report that a list of members in place of `*` works.
 *
 * @see https://developer.intuit.com/app/developer/qbo/docs/learn/explore-the-quickbooks-online-api/data-queries
 */
import { listEntities } from '@integration-host/shared/contracts/provider-event'
import type { Body } from './posted-entities.ts'

const OPERATORS = ['=', '<', '>', '<=', '>=', 'in', 'like'] as const
type Operator = (typeof OPERATORS)[number]

interface Condition {
  /** The name of the member. A dot separates the names of nested members, such as `MetaData.LastUpdatedTime`. */
  readonly member: string
  readonly operator: Operator
  /** One value, or several values for `in`. Numbers and booleans are also represented as strings. */
  readonly values: readonly string[]
}

export interface Query {
  readonly entity: string
  readonly isCount: boolean
  /** The names of the members to return; `null` returns whole objects. */
  readonly members: readonly string[] | null
  readonly conditions: readonly Condition[]
  readonly order: readonly { readonly member: string; readonly isDescending: boolean }[]
  /** The position of the first result, counted from 1. */
  readonly startPosition: number
  readonly maxResults: number
}

const MAX_RESULTS = { usual: 100, most: 1_000 }
const MAX_STATEMENT = 10_000
const TOKEN =
  /\s*(?:(?<text>'(?:[^'\\]|\\[^])*')|(?<word>[A-Za-z_][\w.]*)|(?<number>-?\d+(?:\.\d+)?)|(?<symbol><=|>=|[=<>(),*]))/y

interface Token {
  readonly kind: 'text' | 'word' | 'number' | 'symbol'
  /** The value of the token: words are in lower case, and strings have no quotes. */
  readonly value: string
  readonly source: string
}

/** The error for a statement that is not a query. */
class NotAQuery extends Error {
  override readonly name = 'NotAQuery'
}

/** Parses a statement. Returns `null` if it is not a query of Intuit's language. */
export function parseQuery(statement: string): Query | null {
  if (statement.length > MAX_STATEMENT) return null
  const tokens = tokensOf(statement)
  if (tokens === null) return null
  try {
    return queryOf(tokens)
  } catch (error) {
    if (error instanceof NotAQuery) return null
    throw error
  }
}

function tokensOf(statement: string): Token[] | null {
  const tokens: Token[] = []
  const text = statement.trimEnd()
  TOKEN.lastIndex = 0
  while (TOKEN.lastIndex < text.length) {
    const groups = TOKEN.exec(text)?.groups
    if (groups === undefined) return null
    const [kind, source] = Object.entries(groups).find(([, part]) => part !== undefined) as [
      Token['kind'],
      string,
    ]
    const value =
      kind === 'text'
        ? source.slice(1, -1).replaceAll(/\\([^])/g, '$1')
        : kind === 'word'
          ? source.toLowerCase()
          : source
    tokens.push({ kind, value, source })
  }
  return tokens
}

function queryOf(tokens: readonly Token[]): Query {
  let at = 0
  const next = (): Token => {
    const token = tokens[at]
    if (token === undefined) throw new NotAQuery()
    at += 1
    return token
  }
  const skip = (...values: readonly string[]): boolean => {
    const isHere = values.every((value, index) => {
      const token = tokens[at + index]
      return token !== undefined && token.kind !== 'text' && token.value === value
    })
    if (isHere) at += values.length
    return isHere
  }
  const expect = (...values: readonly string[]): void => {
    if (!skip(...values)) throw new NotAQuery()
  }
  const word = (): string => {
    const { kind, source } = next()
    if (kind !== 'word') throw new NotAQuery()
    return source
  }
  const value = (): string => {
    const token = next()
    const isTruth = token.kind === 'word' && (token.value === 'true' || token.value === 'false')
    if (token.kind !== 'text' && token.kind !== 'number' && !isTruth) throw new NotAQuery()
    return token.value
  }
  const number = (): number => {
    const token = next()
    if (token.kind !== 'number' || !/^\d{1,9}$/.test(token.value)) throw new NotAQuery()
    return Number(token.value)
  }
  const condition = (): Condition => {
    const member = word()
    const { kind, value: given } = next()
    const operator = kind === 'text' ? undefined : OPERATORS.find((each) => each === given)
    if (operator === undefined) throw new NotAQuery()
    if (operator !== 'in') return { member, operator, values: [value()] }
    expect('(')
    const values = [value()]
    while (skip(',')) values.push(value())
    expect(')')
    return { member, operator, values }
  }
  const conditions: Condition[] = []
  const order: { member: string; isDescending: boolean }[] = []

  const wordList = (): string[] => {
    const words = [word()]
    while (skip(',')) words.push(word())
    return words
  }

  expect('select')
  const isCount = skip('count', '(', '*', ')')
  const members = isCount || skip('*') ? null : wordList()
  expect('from')
  const entity = word()
  if (skip('where'))
    do conditions.push(condition())
    while (skip('and'))
  if (skip('orderby') || skip('order', 'by'))
    do {
      const member = word()
      const isDescending = skip('desc')
      if (!isDescending) skip('asc')
      order.push({ member, isDescending })
    } while (skip(','))
  const startPosition = skip('startposition') ? Math.max(1, number()) : 1
  const maxResults = skip('maxresults') ? number() : MAX_RESULTS.usual
  if (at < tokens.length) throw new NotAQuery()
  return {
    entity,
    isCount,
    members,
    conditions,
    order,
    startPosition,
    maxResults: Math.min(MAX_RESULTS.most, maxResults),
  }
}

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
