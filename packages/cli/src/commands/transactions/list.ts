import { headerStatuses } from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import { type Command, expectNone, parse, wholeNumber } from '../../command.ts'
import { exitCodes, UsageError } from '../../exit-code.ts'
import { openCoordinator } from '../../service-api.ts'
import { createTable, notify, plain, print, widthOf } from '../../terminal.ts'
import { Header, pathOf, PROCESS_HELP, processOption } from './arguments.ts'

const Page = z.object({ items: z.array(Header), next_cursor: z.string().nullable() })
const MOST_PER_PAGE = 500
const DEFAULT_LIMIT = 50

export const listTransactions: Command = {
  summary: 'list transactions, the newest first',
  usage: '[--status STATUS] [--since TIME] [--limit N | --all] [--cursor CURSOR]',
  help: `Lists transactions, the newest first. With --json one on each line.

${PROCESS_HELP}
  --status STATUS     ${headerStatuses.join(', ')}
  --since TIME        only transactions changed since this time: 2026-01-31T08:00:00Z
  --limit N           the maximum number (default ${DEFAULT_LIMIT}); the cursor of the next page is printed on standard error
  --all               all transactions
  --cursor CURSOR     continue from this cursor

Examples:
  integration-host transactions list --status Failed
  integration-host transactions list --all --json | jq -r 'select(.WaitingFor == "ACC-1") | .TransactionID'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      ...processOption,
      status: { type: 'string' },
      since: { type: 'string' },
      limit: { type: 'string' },
      all: { type: 'boolean' },
      cursor: { type: 'string' },
    })
    expectNone(positionals)
    const filter = new URLSearchParams()
    if (values.status !== undefined) filter.set('status', statusOf(values.status))
    if (values.since !== undefined) filter.set('since', timeOf(values.since))
    if (values.all && values.limit !== undefined)
      throw new UsageError('Either --limit or --all, not both')
    let left = values.all
      ? Number.POSITIVE_INFINITY
      : wholeNumber('--limit', values.limit ?? String(DEFAULT_LIMIT))
    if (left < 1) throw new UsageError('--limit must be at least 1')
    const service = openCoordinator(values.url, terminal)
    const path = await pathOf(service, values.process)
    const table = createTable(COLUMNS, widthOf(terminal))
    for (let cursor: string | null = values.cursor ?? ''; cursor !== null && left > 0;) {
      filter.set('limit', String(Math.min(left, MOST_PER_PAGE)))
      if (cursor !== '') filter.set('cursor', cursor)
      const page: z.output<typeof Page> = await service.get(`${path}?${filter.toString()}`, Page)
      await print(
        terminal,
        ...(values.json
          ? page.items.map((header) => JSON.stringify(header))
          : table(page.items.map(rowOf))),
      )
      left -= page.items.length
      cursor = page.next_cursor
      if (cursor !== null && left <= 0)
        notify(terminal, `There are more: --cursor ${plain(cursor)}, or --all.`)
    }
    return exitCodes.ok
  },
}

const COLUMNS = ['ID', 'REPLAY', 'STATUS', 'STEP', 'ATTEMPT', 'UPDATED', 'WAITS FOR', 'ERROR']
const SHORT = 60

const rowOf = (header: Header): string[] => [
  header.TransactionID,
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

/** Returns the status in the service's spelling. @throws {UsageError} the status is unknown. */
function statusOf(text: string): string {
  const status = headerStatuses.find((known) => known.toLowerCase() === text.toLowerCase())
  if (status === undefined)
    throw new UsageError(`--status must be one of ${headerStatuses.join(', ')}`)
  return status
}

/** Returns the text if it is a time with an offset. @throws {UsageError} the text is not such a time. */
function timeOf(text: string): string {
  if (!z.iso.datetime({ offset: true }).safeParse(text).success)
    throw new UsageError('--since must be a time such as 2026-01-31T08:00:00Z')
  return text
}
