import type { HeaderStatus } from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import { type Command, expectNone, parse, wholeNumber } from '../../command.ts'
import { exitCodes, UsageError } from '../../exit-code.ts'
import { openCoordinator, type ServiceApi } from '../../service-api.ts'
import {
  type Colour,
  counted,
  createTable,
  notify,
  painter,
  plain,
  print,
  type Terminal,
  widthOf,
} from '../../terminal.ts'
import { createScreen, intervalOf, repeat, WATCH_HELP, watchOptions } from '../../watch.ts'
import { Header, processOption } from './arguments.ts'
import { FILTER_HELP, filterOf, filterOptions, queryOf } from './filter-options.ts'

const Page = z.object({ items: z.array(Header), next_cursor: z.string().nullable() })
const MOST_PER_PAGE = 500
const DEFAULT_LIMIT = 50
const orders = ['created', 'updated'] as const

export const listTransactions: Command = {
  summary: 'find transactions, the newest first',
  usage: '[--process NAME] [filter options] [--order ORDER] [--limit N | --all] [--watch]',
  help: `Lists the runs that fulfil all conditions, the newest first. With --json one on each line.

  --process NAME      the process, loaded or not (default: all processes)
${FILTER_HELP}
  --order ORDER       created or updated: by which time the newest is first (default created)
  --limit N           the maximum number (default ${DEFAULT_LIMIT}); the cursor of the next page is printed on standard error
  --all               all of them
  --cursor CURSOR     continue from this cursor, with the same conditions and order
${WATCH_HELP}

Examples:
  integration-host transactions list --status failed --class http_503 --since 2h
  integration-host transactions list --realm 9341453908059889 --since 1d --order updated
  integration-host transactions list --status retrying,waiting --watch
  integration-host transactions list --all --json | jq -r 'select(.WaitingFor == "ACC-1") | .TransactionID'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      ...processOption,
      ...filterOptions,
      ...watchOptions,
      order: { type: 'string' },
      limit: { type: 'string' },
      all: { type: 'boolean' },
      cursor: { type: 'string' },
    })
    expectNone(positionals)
    const order = orders.find((known) => known === (values.order ?? 'created'))
    if (order === undefined) throw new UsageError(`--order must be ${orders.join(' or ')}`)
    if (values.all && values.limit !== undefined)
      throw new UsageError('Either --limit or --all, not both')
    if (values.watch && (values.all || values.cursor !== undefined))
      throw new UsageError('--watch cannot be combined with --all or --cursor')
    const limit = values.all
      ? Number.POSITIVE_INFINITY
      : wholeNumber('--limit', values.limit ?? String(DEFAULT_LIMIT))
    if (limit < 1) throw new UsageError('--limit must be at least 1')
    if (values.interval !== undefined && !values.watch)
      throw new UsageError('--interval needs --watch')
    const intervalMs = intervalOf(values.interval)
    /** The filter is made for each look, because `--since 2h` moves with the time. */
    const read = (service: ServiceApi) =>
      pages(service, values.process, queryOf(filterOf(values)), {
        order,
        limit,
        cursor: values.cursor ?? null,
      })
    filterOf(values)
    const service = openCoordinator(values.url, terminal)
    const isJson = values.json === true
    if (values.watch) await watch(() => read(service), { intervalMs, isJson }, terminal)
    else await printPages(read(service), isJson, terminal)
    return exitCodes.ok
  },
}

/** Yields pages until there are no more, or as many runs as `limit` allows. A page may be empty although others follow. */
async function* pages(
  service: ServiceApi,
  process: string | undefined,
  query: URLSearchParams,
  from: { readonly order: string; readonly limit: number; readonly cursor: string | null },
): AsyncGenerator<z.output<typeof Page>> {
  const path =
    process === undefined
      ? '/transactions'
      : `/processes/${encodeURIComponent(process)}/transactions`
  if (from.order !== 'created') query.set('order', from.order)
  let left = from.limit
  for (let cursor: string | null = from.cursor ?? ''; cursor !== null && left > 0;) {
    query.set('limit', String(Math.min(left, MOST_PER_PAGE)))
    if (cursor !== '') query.set('cursor', cursor)
    const page: z.output<typeof Page> = await service.get(`${path}?${query.toString()}`, Page)
    yield page
    left -= page.items.length
    cursor = page.next_cursor
  }
}

async function printPages(
  found: AsyncIterable<z.output<typeof Page>>,
  isJson: boolean,
  terminal: Terminal,
): Promise<void> {
  const table = tableFor(terminal)
  let cursor: string | null = null
  for await (const { items, next_cursor: next } of found) {
    await print(
      terminal,
      ...(isJson ? items.map((header) => JSON.stringify(header)) : table(items.map(rowOf))),
    )
    cursor = next
  }
  if (cursor !== null) notify(terminal, `There are more: --cursor ${plain(cursor)}, or --all.`)
}

/** Shows the list again and again. Without a terminal, or with `--json`, a run is printed when its version has changed. */
async function watch(
  read: () => AsyncIterable<z.output<typeof Page>>,
  { intervalMs, isJson }: { readonly intervalMs: number; readonly isJson: boolean },
  terminal: Terminal,
): Promise<void> {
  const isRedrawn = terminal.stdout.isTTY === true && !isJson
  const draw = createScreen(terminal)
  const table = tableFor(terminal)
  let versions = new Map<string, number>()
  await repeat(intervalMs, terminal, async () => {
    const runs: Header[] = []
    for await (const page of read()) runs.push(...page.items)
    if (isRedrawn) {
      const time = new Date().toISOString().slice(11, 19)
      const title = `${counted(runs.length, 'run')} at ${time} UTC, every ${intervalMs / 1_000} s`
      await draw([title, ...tableFor(terminal)(runs.map(rowOf))])
      return true
    }
    const changed = runs.filter((run) => versions.get(keyOf(run)) !== run.Version)
    versions = new Map(runs.map((run) => [keyOf(run), run.Version]))
    await print(
      terminal,
      ...(isJson ? changed.map((run) => JSON.stringify(run)) : table(changed.map(rowOf))),
    )
    return true
  })
}

const keyOf = ({ Process, TransactionID, ReplayID }: Header): string =>
  JSON.stringify([Process, TransactionID, ReplayID])

const COLUMNS = [
  'ID',
  'PROCESS',
  'REPLAY',
  'STATUS',
  'STEP',
  'ATTEMPT',
  'UPDATED',
  'WAITS FOR',
  'ERROR',
]
const STATUS_COLUMN = COLUMNS.indexOf('STATUS')
const SHORT = 60

const colours: Readonly<Partial<Record<HeaderStatus, Colour>>> = {
  Completed: 'green',
  Failed: 'red',
  Retrying: 'yellow',
  Waiting: 'yellow',
  Cancelled: 'dim',
}

/** Returns a table that fits the terminal, with the statuses in colour. */
function tableFor(terminal: Terminal): (rows: readonly (readonly string[])[]) => string[] {
  const paint = painter(terminal)
  return createTable(COLUMNS, widthOf(terminal), (text, column) => {
    const colour = column === STATUS_COLUMN ? colours[text.trimEnd() as HeaderStatus] : undefined
    return colour === undefined ? text : paint(colour, text)
  })
}

const rowOf = (header: Header): string[] => [
  header.TransactionID,
  header.Process,
  String(header.ReplayID),
  header.Status,
  header.StepName,
  String(header.Attempt),
  header.UpdatedAt,
  header.WaitingFor ?? (header.Status === 'Retrying' ? (header.NextAttemptAt ?? '') : ''),
  shortened(header.LastError ?? ''),
]

const shortened = (text: string): string => {
  const line = plain(text)
  return line.length <= SHORT ? line : `${line.slice(0, SHORT).toWellFormed()}…`
}
