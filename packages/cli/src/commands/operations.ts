/** The commands of bulk operations: one action on many runs. */
import {
  bulkActions,
  OperationDetail,
  OperationPage,
  OperationView,
  StartOperation,
} from '@integration-host/shared/contracts/operation'
import { type Command, expectNone, parse, wholeNumber } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { labelled } from '../fault-lines.ts'
import { openCoordinator, type ServiceApi } from '../service-api.ts'
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
} from '../terminal.ts'
import { createScreen, intervalOf, repeat, watchOptions } from '../watch.ts'
import { oneIdOf, REASON_HELP, reasonOf, reasonOption } from './transactions/arguments.ts'
import { FILTER_HELP, filterOf, filterOptions } from './transactions/filter-options.ts'

/** This many runs that failed, or that a dry run would change, are printed. `--json` has all that the coordinator lists. */
const MAX_PRINTED = 20
const DEFAULT_LIMIT = 20
const MOST_PER_PAGE = 200
const WATCH_HELP = `  --watch             print the progress until the operation is over or paused
  --interval SECONDS  how often (default 2, at most 3600)`

export const startOperation: Command = {
  summary: 'resume, cancel, replay or retry many runs',
  usage:
    '--action ACTION --process NAME (filter options | --id ID… | --every-run) --reason TEXT [--dry-run] [--watch]',
  help: `Starts one action on many runs, which the coordinators work on in the background: also after this command has ended,
and after a restart. Runs whose state does not allow the action are skipped. The action log has an entry for each run.

  --action ACTION     ${bulkActions.join(', ')}
  --process NAME      the process of the runs
${FILTER_HELP}
  --id ID             the latest run of this transaction; several: each of them. In place of a filter
  --every-run         every run of the process; needed if neither a filter nor --id is given
  --from-step STEP    with --action replay: start at this step
  --reason TEXT       why, for the action log (at most 500 characters)
  --per-second N      at most so many runs a second (default 50, at most 1000)
  --dry-run           change nothing, but count the runs and name the first of them; implies --watch
${WATCH_HELP}

Exit code 1: with --watch, some runs failed, or the operation was stopped or paused.

Examples:
  integration-host operations start --action resume --process OrderProcess --status failed --class http_503 \\
    --since 2h --reason 'the API is back' --dry-run
  integration-host operations start --action cancel --process OrderProcess --realm 77 --status retrying,waiting \\
    --reason 'the company has left' --per-second 10 --watch`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      ...filterOptions,
      ...reasonOption,
      ...watchOptions,
      action: { type: 'string' },
      process: { type: 'string' },
      id: { type: 'string', multiple: true },
      'every-run': { type: 'boolean' },
      'from-step': { type: 'string' },
      'per-second': { type: 'string' },
      'dry-run': { type: 'boolean' },
    })
    expectNone(positionals)
    const filter = filterOf(values)
    const isFiltered = Object.keys(filter).length > 0
    const ways = [isFiltered, values.id !== undefined, values['every-run'] === true]
    if (ways.filter(Boolean).length !== 1)
      throw new UsageError('Which runs? Give filter options, or --id, or --every-run')
    for (const option of ['action', 'process', 'reason'] as const)
      if (values[option] === undefined) throw new UsageError(`--${option} is needed`)
    const perSecond = values['per-second']
    const request = StartOperation.safeParse({
      Action: values.action,
      Process: values.process,
      ...(values.id === undefined ? { Filter: filter } : { Ids: values.id.map(oneIdOf) }),
      ...(values['from-step'] !== undefined && { FromStep: values['from-step'] }),
      Reason: reasonOf(values.reason),
      ...(perSecond !== undefined && { PerSecond: wholeNumber('--per-second', perSecond) }),
      DryRun: values['dry-run'] === true,
    })
    if (!request.success) {
      const [issue] = request.error.issues
      const member = String(issue?.path[0] ?? '')
      const option = member.replace(/(?<=.)[A-Z]/g, (letter) => `-${letter}`).toLowerCase()
      throw new UsageError(`--${option} ${issue?.message ?? 'is invalid'}`)
    }
    const intervalMs = intervalOf(values.interval)
    const service = openCoordinator(values.url, terminal)
    const started = await service.post('/operations', request.data, OperationView)
    if (values.watch || values['dry-run'])
      return watchOperation(service, started.ID, { intervalMs, isJson: values.json }, terminal)
    await print(
      terminal,
      values.json
        ? JSON.stringify(started)
        : plain(
            `Operation ${started.ID} is started: integration-host operations show ${started.ID}`,
          ),
    )
    return exitCodes.ok
  },
}

export const showOperation: Command = {
  summary: 'show how far a bulk operation has come, and which runs failed',
  usage: 'ID [--watch]',
  help: `Shows a bulk operation with its counts, and the first runs that failed.

${WATCH_HELP}

Examples:
  integration-host operations show 3e0c… --watch
  integration-host operations show 3e0c… --json | jq -r '.Failures[] | [.TransactionID, .Code] | @tsv'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, watchOptions)
    const id = operationId(positionals)
    const intervalMs = intervalOf(values.interval)
    const service = openCoordinator(values.url, terminal)
    if (values.watch)
      return watchOperation(service, id, { intervalMs, isJson: values.json }, terminal)
    const operation = await service.get(pathOf(id), OperationDetail)
    await print(terminal, ...(values.json ? [JSON.stringify(operation)] : linesOf(operation)))
    return exitCodes.ok
  },
}

export const listOperations: Command = {
  summary: 'list bulk operations, the newest first',
  usage: '[--limit N]',
  help: `Lists bulk operations, the newest first. With --json one on each line.

  --limit N           the maximum number (default ${DEFAULT_LIMIT})

Examples:
  integration-host operations list
  integration-host operations list --limit 100 --json | jq -r 'select(.Status == "Paused") | .ID'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, { limit: { type: 'string' } })
    expectNone(positionals)
    let left = wholeNumber('--limit', values.limit ?? String(DEFAULT_LIMIT))
    if (left < 1) throw new UsageError('--limit must be at least 1')
    const service = openCoordinator(values.url, terminal)
    const paint = painter(terminal)
    const table = createTable(COLUMNS, widthOf(terminal), (text, column) => {
      const colour = column === STATUS_COLUMN ? colours[text.trimEnd()] : undefined
      return colour === undefined ? text : paint(colour, text)
    })
    let cursor: string | null = ''
    while (cursor !== null && left > 0) {
      const query = new URLSearchParams({ limit: String(Math.min(left, MOST_PER_PAGE)) })
      if (cursor !== '') query.set('cursor', cursor)
      const page: OperationPage = await service.get(
        `/operations?${query.toString()}`,
        OperationPage,
      )
      await print(
        terminal,
        ...(values.json
          ? page.items.map((operation) => JSON.stringify(operation))
          : table(page.items.map(rowOf))),
      )
      left -= page.items.length
      cursor = page.next_cursor
    }
    if (cursor !== null) notify(terminal, 'There are more: --limit.')
    return exitCodes.ok
  },
}

/** Creates a command that stops or continues an operation. */
const change = (
  action: 'stop' | 'continue',
  {
    summary,
    help,
    done,
  }: { readonly summary: string; readonly help: string; readonly done: string },
): Command => ({
  summary,
  usage: 'ID [--reason TEXT]',
  help: `${help}

${REASON_HELP}

Examples:
  integration-host operations ${action} 3e0c… --reason 'as agreed with Ada'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, reasonOption)
    const id = operationId(positionals)
    const body = { Reason: reasonOf(values.reason) }
    const service = openCoordinator(values.url, terminal)
    const operation = await service.post(`${pathOf(id)}/${action}`, body, OperationView)
    const text = `Operation ${operation.ID} ${done}: ${progressOf(operation)}.`
    await print(terminal, values.json ? JSON.stringify(operation) : plain(text))
    return exitCodes.ok
  },
})

export const stopOperation = change('stop', {
  summary: 'stop a bulk operation for good',
  help: 'Stops a bulk operation for good. What it has done stays done; at most the runs of a fifth of a second follow.',
  done: 'is stopped',
})

export const continueOperation = change('continue', {
  summary: 'continue a bulk operation that many failures have paused',
  help: `Continues a bulk operation that was paused because 20 runs in a row failed with the same 5xx. These runs are tried
again. Fix the cause first; operations show names the code.`,
  done: 'continues',
})

const pathOf = (id: string): string => `/operations/${encodeURIComponent(id)}`

/** @throws {UsageError} the id is missing, or there are further arguments. */
function operationId(positionals: readonly string[]): string {
  const [id, ...rest] = positionals
  if (id === undefined)
    throw new UsageError('The id of an operation is needed; operations list has it')
  expectNone(rest)
  return id
}

/** Prints the progress of an operation until it is over or paused. Resolves with the exit code. */
async function watchOperation(
  service: ServiceApi,
  id: string,
  { intervalMs, isJson }: { readonly intervalMs: number; readonly isJson: boolean | undefined },
  terminal: Terminal,
): Promise<number> {
  const isRedrawn = terminal.stdout.isTTY === true && !isJson
  const draw = createScreen(terminal)
  let printed = ''
  let last: OperationDetail | null = null
  await repeat(intervalMs, terminal, async () => {
    const operation = await service.get(pathOf(id), OperationDetail)
    last = operation
    const isRunning = operation.Status === 'Running'
    const progress = plain(`${operation.Status}: ${progressOf(operation)}`)
    if (isJson) {
      if (!isRunning) await print(terminal, JSON.stringify(operation))
    } else if (isRedrawn) await draw(linesOf(operation))
    else if (!isRunning) await print(terminal, ...linesOf(operation))
    else if (progress !== printed) await print(terminal, progress)
    printed = progress
    return isRunning
  })
  // TypeScript does not follow the assignment in the function above.
  const ended = last as OperationDetail | null
  return ended?.Status === 'Completed' && ended.Failed === 0 ? exitCodes.ok : exitCodes.failed
}

const progressOf = ({ Done, Skipped, Failed, DryRun }: OperationView): string =>
  `${counted(Done, 'run')} ${DryRun ? 'would be changed' : 'changed'}, ${Skipped} skipped, ${Failed} failed`

function linesOf(operation: OperationDetail): string[] {
  const { Failures, Matches, FailedByCode, Filter, IdCount } = operation
  const codes = Object.entries(FailedByCode).map(([code, count]) => `${code} ${count}`)
  const header = [
    ['Operation', operation.ID],
    ['Action', `${operation.Action}${operation.DryRun ? ' (dry run)' : ''}`],
    ['Process', operation.Process],
    ['Runs', Filter === null ? counted(IdCount ?? 0, 'id') : JSON.stringify(Filter)],
    ['From step', operation.FromStep],
    ['Status', operation.Status],
    ['Because', operation.StatusReason],
    ['Progress', progressOf(operation)],
    ['Failed', codes.join(', ')],
    ['Started by', operation.Person ?? operation.KeyID],
    ['Reason', operation.Reason],
    ['Started', operation.CreatedAt],
    ['Finished', operation.FinishedAt],
  ].flatMap(([label = '', text]) => (text ? [labelled(label ?? '', text)] : []))
  return [
    ...header,
    ...tableOf(['FAILED', 'REPLAY', 'CODE'], Failures, ({ Code }) => Code),
    ...tableOf(['WOULD CHANGE', 'REPLAY', 'STATUS'], Matches, ({ Status }) => Status),
  ]
}

/** Returns the first runs as a table under an empty line; nothing if there are none. */
function tableOf<Run extends { readonly TransactionID: string; readonly ReplayID: number | null }>(
  columns: readonly string[],
  runs: readonly Run[],
  detailOf: (run: Run) => string,
): string[] {
  if (runs.length === 0) return []
  const rows = runs
    .slice(0, MAX_PRINTED)
    .map((run) => [run.TransactionID, String(run.ReplayID ?? ''), detailOf(run)])
  const more = runs.length - rows.length
  return [
    '',
    ...createTable(columns)(rows),
    ...(more > 0 ? [`… and ${more} more (--json has them)`] : []),
  ]
}

const COLUMNS = [
  'ID',
  'ACTION',
  'PROCESS',
  'STATUS',
  'DONE',
  'SKIPPED',
  'FAILED',
  'STARTED',
  'BY',
  'REASON',
]
const STATUS_COLUMN = COLUMNS.indexOf('STATUS')
const colours: Readonly<Record<string, Colour>> = {
  Completed: 'green',
  Paused: 'red',
  Running: 'yellow',
  Stopped: 'dim',
}

const rowOf = (operation: OperationView): string[] => [
  operation.ID,
  `${operation.Action}${operation.DryRun ? ' (dry)' : ''}`,
  operation.Process,
  operation.Status,
  String(operation.Done),
  String(operation.Skipped),
  String(operation.Failed),
  operation.CreatedAt,
  operation.Person ?? operation.KeyID,
  operation.Reason ?? '',
]
