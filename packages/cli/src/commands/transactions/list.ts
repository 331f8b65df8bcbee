import { z } from 'zod'
import { type Command, expectNone, parse } from '../../command.ts'
import { exitCodes, UsageError } from '../../exit-code.ts'
import { limitOf, pagesOf, printPages } from '../../paging.ts'
import { openCoordinator } from '../../service-api.ts'
import {
  type Colour,
  counted,
  createTable,
  notify,
  plain,
  print,
  shortLine,
  statusPainter,
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
  help: `Lists the runs that fulfil all conditions, the newest first. With --json each line is one run.

  --process NAME      only runs of this process, which need not be loaded (default: all processes)
${FILTER_HELP}
  --order ORDER       created or updated: the time by which the runs are sorted (default created)
  --limit N           the maximum number (default ${DEFAULT_LIMIT}); the cursor of the next page is printed on standard error
  --all               all runs
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
    const limit = limitOf(values, DEFAULT_LIMIT)
    if (values.watch && (values.all || values.cursor !== undefined))
      throw new UsageError('--watch cannot be combined with --all or --cursor')
    if (values.interval !== undefined && !values.watch)
      throw new UsageError('--interval needs --watch')
    const intervalMs = intervalOf(values.interval)
    const path =
      values.process === undefined
        ? '/transactions'
        : `/processes/${encodeURIComponent(values.process)}/transactions`
    // The query is computed for each request of --watch, because `--since 2h` is relative to the current time.
    const readQuery = (): URLSearchParams => {
      const query = queryOf(filterOf(values, terminal.wallClock()))
      if (order !== 'created') query.set('order', order)
      if (values.cursor !== undefined) query.set('cursor', values.cursor)
      return query
    }
    readQuery() // reports an invalid option before a missing service key
    const service = openCoordinator(values.url, terminal)
    const read = () =>
      pagesOf(service, {
        path,
        query: readQuery(),
        schema: Page,
        limit,
        mostPerPage: MOST_PER_PAGE,
      })
    const isJson = values.json === true
    if (values.watch) {
      await watch(read, { intervalMs, isJson }, terminal)
      return exitCodes.ok
    }
    const format = {
      isJson,
      columns: COLUMNS,
      rowOf,
      paintCell: statusPainter(terminal, COLUMNS, colours),
      width: tableWidth(terminal),
    }
    const next = await printPages(read(), format, terminal)
    if (next !== null) notify(terminal, `There are more: --cursor ${plain(next)}, or --all.`)
    return exitCodes.ok
  },
}

/**
 * Prints the list at every interval. Without a terminal, or with `--json`, only the runs with a new version are
 * printed.
 */
async function watch(
  read: () => AsyncIterable<readonly Header[]>,
  { intervalMs, isJson }: { readonly intervalMs: number; readonly isJson: boolean },
  terminal: Terminal,
): Promise<void> {
  const isRedrawn = terminal.stdout.isTTY === true && !isJson
  const draw = createScreen(terminal)
  const createRunTable = () =>
    createTable(COLUMNS, tableWidth(terminal), statusPainter(terminal, COLUMNS, colours))
  const table = createRunTable()
  let versions = new Map<string, number>()
  const poll = async (): Promise<boolean> => {
    const runs: Header[] = []
    for await (const items of read()) runs.push(...items)
    if (isRedrawn) {
      const time = new Date(terminal.wallClock()).toISOString().slice(11, 19)
      const title = `${counted(runs.length, 'run')} at ${time} UTC, every ${intervalMs / 1_000} s`
      await draw([title, ...createRunTable()(runs.map(rowOf))])
      return true
    }
    const changed = runs.filter((run) => versions.get(keyOf(run)) !== run.Version)
    versions = new Map(runs.map((run) => [keyOf(run), run.Version]))
    await print(
      terminal,
      ...(isJson ? changed.map((run) => JSON.stringify(run)) : table(changed.map(rowOf))),
    )
    return true
  }
  await repeat(intervalMs, terminal, poll, isRedrawn ? (message) => draw([message]) : undefined)
}

const keyOf = ({ Process, TransactionID, ReplayID }: Header): string =>
  JSON.stringify([Process, TransactionID, ReplayID])

/** The list fits a common window if the width of the output is unknown, too. `--json` shows everything. */
const tableWidth = (terminal: Terminal): number => widthOf(terminal) ?? 120

const COLUMNS = ['ID', 'PROCESS', 'REPLAY', 'STATUS', 'STEP', 'ATTEMPT', 'UPDATED', 'WHY']

const colours: Readonly<Record<string, Colour>> = {
  Completed: 'green',
  Failed: 'red',
  Retrying: 'yellow',
  Waiting: 'yellow',
  Cancelled: 'dim',
}

/**
 * Returns whether the run waits for a time: the time of its next attempt, or the start time with which it was queued.
 */
const isWaitingForTime = ({ Status, NotBefore }: Header): boolean =>
  Status === 'Retrying' || (Status === 'Queued' && typeof NotBefore === 'string')

const rowOf = (header: Header): string[] => [
  header.TransactionID,
  header.Process,
  String(header.ReplayID),
  header.Status,
  header.StepName,
  String(header.Attempt),
  header.UpdatedAt,
  [header.WaitingFor, header.LastError ?? (isWaitingForTime(header) ? header.NextAttemptAt : null)]
    .map((part) => shortLine(part ?? ''))
    .join(' ')
    .trim(),
]
