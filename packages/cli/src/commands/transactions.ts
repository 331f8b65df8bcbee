import { Realm } from '@integration-host/shared/contracts/realm'
import { parseJson } from '@integration-host/shared/json'
import {
  headerStatuses,
  HeaderView,
  ReplayID,
  TransactionID,
  TransactionView,
} from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import { type Command, expectNone, parse, wholeNumber } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { labelled } from '../fault-lines.ts'
import { openCoordinator, type ServiceApi } from '../service-api.ts'
import { createTable, plain, print, notify, type Terminal } from '../terminal.ts'
import { queueFile } from './queue-file.ts'

/** Members that the coordinator adds to the contract for operators. */
const forOperators = {
  ErrorClass: z.string().nullable().optional(),
  WaitingFor: z.string().nullable().optional(),
}
const Header = HeaderView.extend(forOperators)
type Header = z.output<typeof Header>
const Run = TransactionView.extend(forOperators)
const Page = z.object({ items: z.array(Header), next_cursor: z.string().nullable() })
const Processes = z.object({ items: z.array(z.object({ Process: z.string() })) })

const MOST_PER_PAGE = 500
const DEFAULT_LIMIT = 50

const processOption = { process: { type: 'string' } } as const
const PROCESS_HELP =
  '  --process NAME      of this process; may be left out while the coordinator has only one'

/** `/processes/<name>/transactions`. @throws {CommandFailed} */
async function pathOf(service: ServiceApi, name: string | undefined): Promise<string> {
  if (name !== undefined) return `/processes/${encodeURIComponent(name)}/transactions`
  const { items } = await service.get('/processes', Processes)
  const [only, ...others] = items.map(({ Process }) => Process)
  if (only !== undefined && others.length === 0) return pathOf(service, only)
  throw new UsageError(`--process is needed; there are: ${[only, ...others].join(', ') || 'none'}`)
}

/** The one transaction that a command is about. @throws {UsageError} */
function oneId(positionals: readonly string[]): string {
  const [id, ...rest] = positionals
  if (id === undefined) throw new UsageError('The id of a transaction is needed')
  expectNone(rest)
  return usableId(id)
}

function usableId(text: string): string {
  const id = TransactionID.safeParse(text)
  if (!id.success) throw new UsageError(`The id ${id.error.issues[0]?.message ?? 'is invalid'}`)
  return id.data
}

/** `?replay=…`, or nothing for the latest run. @throws {UsageError} */
function replayQuery(text: string | undefined): string {
  if (text === undefined) return ''
  const id = ReplayID.safeParse(wholeNumber('--replay', text))
  if (!id.success) throw new UsageError('--replay is too large')
  return `?replay=${id.data}`
}

export const list: Command = {
  summary: 'transactions, the newest first',
  usage: '[--status STATUS] [--since TIME] [--limit N | --all] [--cursor CURSOR]',
  help: `Lists transactions, the newest first. With --json one on each line.

${PROCESS_HELP}
  --status STATUS     ${headerStatuses.join(', ')}
  --since TIME        changed since then: 2026-01-31T08:00:00Z
  --limit N           at most so many (default ${DEFAULT_LIMIT}); the cursor of the next page is printed on standard error
  --all               all of them
  --cursor CURSOR     go on from there

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
    const table = createTable(COLUMNS)
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

/** As the service spells it. @throws {UsageError} */
function statusOf(text: string): string {
  const status = headerStatuses.find((known) => known.toLowerCase() === text.toLowerCase())
  if (status === undefined)
    throw new UsageError(`--status must be one of ${headerStatuses.join(', ')}`)
  return status
}

/** @throws {UsageError} */
function timeOf(text: string): string {
  if (!z.iso.datetime({ offset: true }).safeParse(text).success)
    throw new UsageError('--since must be a time such as 2026-01-31T08:00:00Z')
  return text
}

export const show: Command = {
  summary: 'one run, with its steps and every attempt',
  usage: 'ID [--replay N]',
  help: `Shows one run of a transaction with its steps and every attempt.

${PROCESS_HELP}
  --replay N          this run; the latest without it

Examples:
  integration-host transactions show 66
  integration-host transactions show 66 --replay 0 --json | jq '.Items[].ResponseBody'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, { ...processOption, replay: { type: 'string' } })
    const id = oneId(positionals)
    const query = replayQuery(values.replay)
    const service = openCoordinator(values.url, terminal)
    const path = await pathOf(service, values.process)
    const run = await service.get(`${path}/${encodeURIComponent(id)}${query}`, Run)
    if (values.json) {
      await print(terminal, JSON.stringify(run))
      return exitCodes.ok
    }
    const { Items, Attempts } = run
    await print(terminal, ...headerLines(run))
    if (Items.length > 0)
      await print(
        terminal,
        '',
        ...createTable(['STEP', 'STATUS', 'ATTEMPT', 'ANSWER', 'FINISHED', 'ERROR'])(
          Items.map((item) => [
            item.StepName,
            item.Status,
            String(item.Attempt),
            String(item.ResponseStatus ?? ''),
            item.FinishedAt ?? '',
            item.Error ?? '',
          ]),
        ),
      )
    if (Attempts.length > 0)
      await print(
        terminal,
        '',
        ...createTable(['ATTEMPT', 'STEP', 'OUTCOME', 'ANSWER', 'STARTED', 'FINISHED', 'ERROR'])(
          Attempts.map((attempt) => [
            String(attempt.Attempt),
            attempt.StepName,
            attempt.Outcome,
            String(attempt.ResponseStatus ?? ''),
            attempt.StartedAt,
            attempt.FinishedAt ?? '',
            attempt.Error ?? '',
          ]),
        ),
      )
    return exitCodes.ok
  },
}

const headerLines = (header: Header): string[] =>
  [
    ['Transaction', header.TransactionID],
    ['Process', header.Process],
    ['Replay', String(header.ReplayID)],
    ['Status', header.Status],
    ['Step', header.StepName],
    ['Initial data', JSON.stringify(header.InitialData)],
    ['Realm', header.Realm],
    ['Waits for', header.WaitingFor],
    ['Next attempt', header.NextAttemptAt],
    ['Error', header.LastError],
    ['Created', header.CreatedAt],
    ['Updated', header.UpdatedAt],
    ['Completed', header.CompletedAt],
  ].flatMap(([label = '', text]) => (text ? [labelled(label ?? '', text)] : []))

/** A command that changes one run and prints the outcome. */
function action(
  { summary, usage, help }: Pick<Command, 'summary' | 'usage' | 'help'>,
  path: string,
  done: (header: Header) => string,
): Command {
  return {
    summary,
    usage,
    help,
    async run(args, terminal) {
      const { values, positionals } = parse(args, { ...processOption, replay: { type: 'string' } })
      const id = oneId(positionals)
      const query = replayQuery(values.replay)
      const service = openCoordinator(values.url, terminal)
      const at = `${await pathOf(service, values.process)}/${encodeURIComponent(id)}`
      const header = await service.post(`${at}/${path}${query}`, {}, Header)
      await printOutcome(terminal, header, values.json, done(header))
      return exitCodes.ok
    },
  }
}

async function printOutcome(
  terminal: Terminal,
  header: Header,
  isJson: boolean | undefined,
  text: string,
): Promise<void> {
  await print(terminal, isJson ? JSON.stringify(header) : plain(text))
}

export const resume = action(
  {
    summary: 'a failed or cancelled run goes on',
    usage: 'ID [--replay N]',
    help: `A failed or cancelled run goes on from its step: same ReplayID, same idempotency keys.

${PROCESS_HELP}
  --replay N          this run; the latest without it

Examples:
  integration-host transactions resume 66
  integration-host transactions list --status Failed --all --json | jq -r .TransactionID |
    xargs -d '\\n' -n 1 integration-host transactions resume --`,
  },
  'resume',
  ({ TransactionID: id, ReplayID: replay, StepName }) =>
    `${id} goes on with ${StepName}, as run ${replay}.`,
)

export const cancel = action(
  {
    summary: 'stop a run',
    usage: 'ID [--replay N]',
    help: `Stops a run; a call that is on its way is aborted. It can be resumed.

${PROCESS_HELP}
  --replay N          this run; the latest without it

Examples:
  integration-host transactions cancel 66`,
  },
  'cancel',
  ({ TransactionID: id, ReplayID: replay, StepName }) =>
    `${id} is cancelled at ${StepName}, in run ${replay}.`,
)

export const replay: Command = {
  summary: 'run it again with the same initial data',
  usage: 'ID [--from-step STEP]',
  help: `Runs a transaction again, with the same initial data: a new ReplayID and new idempotency keys. Refused while a run
is active.

${PROCESS_HELP}
  --from-step STEP    from this step, with the results that the latest run has of those before it

Examples:
  integration-host transactions replay 66
  integration-host transactions replay 66 --from-step csv`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      ...processOption,
      'from-step': { type: 'string' },
    })
    const id = oneId(positionals)
    const service = openCoordinator(values.url, terminal)
    const at = `${await pathOf(service, values.process)}/${encodeURIComponent(id)}`
    const header = await service.post(`${at}/replays`, { fromStep: values['from-step'] }, Header)
    const text = `${header.TransactionID} is queued as run ${header.ReplayID}.`
    await printOutcome(terminal, header, values.json, text)
    return exitCodes.ok
  },
}

export const queue: Command = {
  summary: 'queue a transaction, or a file of them',
  usage: '(ID [--data JSON] [--realm REALM] | --file FILE)',
  help: `Queues a transaction. The same id with the same data is not an error; with other data it is rejected.

${PROCESS_HELP}
  --data JSON         its initial data (default: the id as a string)
  --realm REALM       the company it is about
  --file FILE         a transaction on each line: {"TransactionID": "1", "InitialData": …, "Realm": "…"}

Examples:
  integration-host transactions queue 66
  integration-host transactions queue inv-7 --process InvoiceProcess --data '{"Amount": 12.5}' --realm 9341453908059889
  integration-host transactions queue --file orders.ndjson`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      ...processOption,
      data: { type: 'string' },
      realm: { type: 'string' },
      file: { type: 'string' },
    })
    if (values.file !== undefined) {
      expectNone(positionals)
      if (values.data !== undefined || values.realm !== undefined)
        throw new UsageError('With --file, data and realm are in the file')
      const service = openCoordinator(values.url, terminal)
      const path = await pathOf(service, values.process)
      return queueFile(values.file, service, path, values.json === true, terminal)
    }
    const id = oneId(positionals)
    const realm = Realm.optional().safeParse(values.realm)
    if (!realm.success) throw new UsageError(`--realm ${realm.error.issues[0]?.message ?? ''}`)
    const InitialData = values.data === undefined ? id : jsonOf(values.data)
    const service = openCoordinator(values.url, terminal)
    const { status, data: header } = await service.postForStatus(
      await pathOf(service, values.process),
      { TransactionID: id, InitialData, Realm: realm.data },
      Header,
    )
    const text = status === 202 ? `${id} is queued.` : `${id} was queued before: ${header.Status}.`
    await printOutcome(terminal, header, values.json, text)
    return exitCodes.ok
  },
}

/** @throws {UsageError} */
function jsonOf(text: string): unknown {
  const value = parseJson(text)
  if (value === undefined)
    throw new UsageError('--data is not JSON; a string needs its quotes: \'"text"\'')
  return value
}
