/** Reads and prints lists, which the services return page by page. */
import type { ParseArgsOptionsConfig } from 'node:util'
import type { z } from 'zod'
import {
  type CommonOptions,
  type Definition,
  defineCommand,
  flags,
  type Given,
  texts,
  wholeNumber,
} from './command.ts'
import { UsageError } from './exit-code.ts'
import { openCoordinator, type ServiceApi } from './service-api.ts'
import {
  type Colour,
  type Columns,
  createTable,
  notify,
  plain,
  print,
  statusPainter,
  type Terminal,
  widthOf,
} from './terminal.ts'

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

type Parameter = string | number | boolean
export type QueryParameters = Readonly<Record<string, Parameter | readonly Parameter[] | undefined>>

/** Returns the parameters that are given as a query. A parameter with several values is repeated. */
export const queryOf = (parameters: QueryParameters): URLSearchParams =>
  new URLSearchParams(
    Object.entries(parameters).flatMap(([name, value = []]) =>
      [value].flat().map((one): [string, string] => [name, String(one)]),
    ),
  )

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

/** Prints the items of all pages, as a table or as JSON lines. Returns the position of the next page. */
export async function printPages<Item, Next>(
  pages: AsyncGenerator<readonly Item[], Next, void>,
  isJson: boolean | undefined,
  table: ReturnType<typeof createTable<Item>>,
  terminal: Terminal,
): Promise<Next> {
  for (;;) {
    const page = await pages.next()
    if (page.done === true) return page.value
    const lines = isJson ? page.value.map((item) => JSON.stringify(item)) : table(page.value)
    await print(terminal, ...lines)
  }
}

/** The options of a list of which any part can be read. */
export const cursorOptions = { ...texts('limit', 'cursor'), ...flags('all') }

/** Returns the text that names the options for the next page of a list with {@link cursorOptions}. */
export const moreByCursor = (cursor: string): string => `--cursor ${cursor}, or --all`

export const DEFAULT_LIMIT = 50

interface PagedList<Options extends ParseArgsOptionsConfig, Argument, Item>
  extends
    Omit<Definition<Options, Argument>, 'run'>,
    Pick<List<Item>, 'schema'>,
    Partial<Pick<List<Item>, 'mostPerPage'>> {
  /** Returns the query. @throws {UsageError} an option is invalid. */
  readonly parametersOf?: (given: Given<Options, Argument>) => QueryParameters
  readonly pathOf: (
    service: ServiceApi,
    given: Given<Options, Argument>,
  ) => string | Promise<string>
  readonly defaultLimit?: number
  readonly columns: Columns<Item>
  /** The colours of the texts in the column `STATUS`. */
  readonly colours?: Readonly<Record<string, Colour>>
  /** Returns the text that names the options for the next page. */
  readonly more: (position: string) => string
}

/** Creates a command that prints a list of the coordinator, which may have several pages. */
export const pagedList = <
  const Options extends ParseArgsOptionsConfig = CommonOptions,
  Argument = void,
  Item = unknown,
>({
  parametersOf = () => ({}),
  pathOf,
  schema,
  defaultLimit = DEFAULT_LIMIT,
  mostPerPage = 500,
  columns,
  colours = {},
  more,
  ...definition
}: PagedList<Options, Argument, Item>) =>
  defineCommand<Options, Argument>({
    ...definition,
    async run(given) {
      const { terminal } = given
      // The cast is needed because the options of a list are a type parameter.
      const values: {
        limit?: string
        all?: boolean
        cursor?: string
        url?: string
        json?: boolean
      } = given.values
      const limit = limitOf(values, defaultLimit)
      const query = queryOf({ ...parametersOf(given), cursor: values.cursor })
      const service = openCoordinator(values.url, terminal)
      const path = await pathOf(service, given)
      const pages = pagesOf(service, { path, query, schema, limit, mostPerPage })
      const table = createTable(columns, widthOf(terminal), statusPainter(terminal, colours))
      const next = await printPages(pages, values.json, table, terminal)
      if (next !== null) notify(terminal, `There are more: ${more(plain(next))}.`)
    },
  })
