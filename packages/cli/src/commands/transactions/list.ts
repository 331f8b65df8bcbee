import { z } from 'zod'
import { defineCommand, texts } from '../../command.ts'
import { UsageError } from '../../exit-code.ts'
import {
  cursorOptions,
  DEFAULT_LIMIT,
  limitOf,
  moreByCursor,
  pagesOf,
  printPages,
  queryOf,
} from '../../paging.ts'
import { openCoordinator } from '../../service-api.ts'
import {
  type Colour,
  type Columns,
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
import { FILTER_HELP, filterOf, filterOptions } from './filter-options.ts'

const Page = z.object({ items: z.array(Header), next_cursor: z.string().nullable() })
const MOST_PER_PAGE = 500
const orders = ['created', 'updated'] as const

export const listTransactions = defineCommand({
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
  options: {
    ...processOption,
    ...filterOptions,
    ...watchOptions,
    ...texts('order'),
    ...cursorOptions,
  },
  async run({ values, terminal }) {
    const order = orders.find((known) => known === (values.order ?? 'created'))
    if (order === undefined) throw new UsageError(`--order must be ${orders.join(' or ')}`)
    const limit = limitOf(values, DEFAULT_LIMIT)
    const { cursor } = values
    if (values.watch && (values.all || cursor !== undefined))
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
      const filter = filterOf(values, terminal.wallClock())
      return queryOf({ ...filter, order: order === 'created' ? undefined : order, cursor })
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
    if (values.watch) return watch(read, { intervalMs, isJson: values.json === true }, terminal)
    const next = await printPages(read(), values.json, createRunTable(terminal), terminal)
    if (next !== null) notify(terminal, `There are more: ${moreByCursor(plain(next))}.`)
    return undefined
  },
})

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
  const table = createRunTable(terminal)
  let versions = new Map<string, number>()
  const poll = async (): Promise<boolean> => {
    const runs: Header[] = []
    for await (const items of read()) runs.push(...items)
    if (isRedrawn) {
      const time = new Date(terminal.wallClock()).toISOString().slice(11, 19)
      const title = `${counted(runs.length, 'run')} at ${time} UTC, every ${intervalMs / 1_000} s`
      await draw([title, ...createRunTable(terminal)(runs)])
      return true
    }
    const changed = runs.filter((run) => versions.get(keyOf(run)) !== run.Version)
    versions = new Map(runs.map((run) => [keyOf(run), run.Version]))
    await print(terminal, ...(isJson ? changed.map((run) => JSON.stringify(run)) : table(changed)))
    return true
  }
  await repeat(intervalMs, terminal, poll, isRedrawn ? (message) => draw([message]) : undefined)
}

const keyOf = ({ Process, TransactionID, ReplayID }: Header): string =>
  JSON.stringify([Process, TransactionID, ReplayID])

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

const columns: Columns<Header> = {
  ID: ({ TransactionID }) => TransactionID,
  PROCESS: ({ Process }) => Process,
  REPLAY: ({ ReplayID }) => ReplayID,
  STATUS: ({ Status }) => Status,
  STEP: ({ StepName }) => StepName,
  ATTEMPT: ({ Attempt }) => Attempt,
  UPDATED: ({ UpdatedAt }) => UpdatedAt,
  WHY: (header) =>
    [
      header.WaitingFor,
      header.LastError ?? (isWaitingForTime(header) ? header.NextAttemptAt : null),
    ]
      .map((part) => shortLine(part ?? ''))
      .join(' ')
      .trim(),
}

/** The list fits a common window if the width of the output is unknown, too. `--json` shows everything. */
const createRunTable = (terminal: Terminal) =>
  createTable(columns, widthOf(terminal) ?? 120, statusPainter(terminal, colours))
