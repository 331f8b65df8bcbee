export interface Query {
  readonly entity: string
  readonly isCount: boolean
  /** The position of the first result, counted from 1. */
  readonly startPosition: number
  readonly maxResults: number
}

const QUERY =
  /^select (?<what>\*|count\( ?\* ?\)) from (?<entity>[a-z]+)(?: startposition (?<start>\d{1,9}))?(?: maxresults (?<max>\d{1,9}))?$/i
const MAX_RESULTS = { usual: 100, most: 1_000 }

/**
 * Parses a statement in a subset of Intuit's query language, without conditions (WHERE) and sorting (ORDERBY). Returns
 * `null` for any other statement.
 */
export function parseQuery(statement: string): Query | null {
  const words = statement.trim().split(/\s+/).join(' ')
  const groups = QUERY.exec(words)?.groups
  if (groups === undefined) return null
  return {
    entity: groups['entity'] ?? '',
    isCount: groups['what'] !== '*',
    startPosition: Math.max(1, Number(groups['start'] ?? 1)),
    maxResults: Math.min(MAX_RESULTS.most, Number(groups['max'] ?? MAX_RESULTS.usual)),
  }
}
