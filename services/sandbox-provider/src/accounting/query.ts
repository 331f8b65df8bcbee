/**
 * Intuit's query language: `select * from Invoice where TxnDate >= '2026-01-01' orderby TxnDate desc startposition 1
 * maxresults 10`. Conditions can only be joined by AND. The language has no OR, JOIN or GROUP BY. Intuit's documentation
 * says that queries return whole objects only; users report that a list of members in place of `*` works.
 *
 * @see https://developer.intuit.com/app/developer/qbo/docs/learn/explore-the-quickbooks-online-api/data-queries
 */
const OPERATORS = ['=', '<', '>', '<=', '>=', 'in', 'like'] as const
export type Operator = (typeof OPERATORS)[number]

export interface Condition {
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
