/** Reads and prints lists, which the services return page by page. */
import type { z } from 'zod'
import { wholeNumber } from './command.ts'
import { UsageError } from './exit-code.ts'
import type { ServiceApi } from './service-api.ts'
import { createTable, print, type Terminal, widthOf } from './terminal.ts'

/** A page. `next_cursor` or `next_before` is the position of the next page; `null` or absent on the last page. */
type Page<Item> =
  | { readonly items: readonly Item[]; readonly next_cursor: string | null }
  | { readonly items: readonly Item[]; readonly next_before?: number | null | undefined }

interface List<Item> {
  readonly path: string
  /** The query parameters of the first request. Further requests differ in `cursor` or `before`, and in `limit`. */
  readonly query?: URLSearchParams
  readonly schema: z.ZodType<Page<Item>>
  /** The maximum number of items that are read. */
  readonly limit: number
  /** The maximum number of items that the service puts on a page. */
  readonly mostPerPage: number
}

/**
 * Returns the maximum number of items according to `--limit` or `--all`.
 *
 * @throws {UsageError} both options are given, or `--limit` is not a whole number above 0.
 */
export function limitOf(
  { limit, all }: { readonly limit?: string | undefined; readonly all?: boolean | undefined },
  defaultLimit: number,
): number {
  if (all && limit !== undefined) throw new UsageError('Either --limit or --all, not both')
  if (all) return Number.POSITIVE_INFINITY
  const most = limit === undefined ? defaultLimit : wholeNumber('--limit', limit)
  if (most < 1) throw new UsageError('--limit must be at least 1')
  return most
}

/**
 * Yields the items of each page until the last page or the limit. A page may be empty even if more pages follow.
 * Returns the position of the page after the last one that was read, for `--cursor` or `--before`; `null` if no page
 * follows.
 */
export async function* pagesOf<Item>(
  service: Pick<ServiceApi, 'get'>,
  { path, query, schema, limit, mostPerPage }: List<Item>,
): AsyncGenerator<readonly Item[], string | null, void> {
  const parameters = new URLSearchParams(query)
  let left = limit
  for (;;) {
    parameters.set('limit', String(Math.min(left, mostPerPage)))
    const page = await service.get(`${path}?${parameters.toString()}`, schema)
    yield page.items
    left -= page.items.length
    const [position, next] =
      'next_cursor' in page ? ['cursor', page.next_cursor] : ['before', page.next_before ?? null]
    if (next === null || left <= 0) return next === null ? null : String(next)
    parameters.set(position, String(next))
  }
}

interface Format<Item> {
  readonly isJson: boolean | undefined
  readonly columns: readonly string[]
  readonly rowOf: (item: Item) => readonly string[]
  readonly paintCell?: Parameters<typeof createTable>[2]
  /** The width of the table (default: that of the terminal). */
  readonly width?: number
}

/** Prints the items of all pages, as a table or as JSON lines. Returns the position of the next page. */
export async function printPages<Item, Next>(
  pages: AsyncGenerator<readonly Item[], Next, void>,
  { isJson, columns, rowOf, paintCell, width }: Format<Item>,
  terminal: Terminal,
): Promise<Next> {
  const table = createTable(columns, width ?? widthOf(terminal), paintCell)
  for (;;) {
    const page = await pages.next()
    if (page.done === true) return page.value
    const lines = isJson
      ? page.value.map((item) => JSON.stringify(item))
      : table(page.value.map(rowOf))
    await print(terminal, ...lines)
  }
}
