/** The commands of bulk operations: one action on many runs. */
import { keyName } from '@integration-host/shared/access/key-list'
import {
  bulkActions,
  OperationDetail,
  OperationPage,
  OperationView,
  StartOperation,
  type TakenObject,
} from '@integration-host/shared/contracts/operations'
import { type Command, expectNone, invalidOption, parse, wholeNumber } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { labelled } from '../fault-lines.ts'
import { limitOf, pagesOf, printPages } from '../paging.ts'
import { openCoordinator, type ServiceApi } from '../service-api.ts'
import {
  type Colour,
  counted,
  createTable,
  notify,
  plain,
  print,
  statusPainter,
  type Terminal,
} from '../terminal.ts'
import { changeCommand } from '../service-command.ts'
import { createScreen, INTERVAL_HELP, intervalOf, repeat, watchOptions } from '../watch.ts'
import { objectLinesOf, objectsOf } from './taken-objects.ts'
import { reasonOf, reasonOption, transactionId } from './transactions/arguments.ts'
import { FILTER_HELP, filterOf, filterOptions } from './transactions/filter-options.ts'

/** The maximum number of runs that are printed. `--json` prints all runs that the coordinator lists. */
const MAX_PRINTED = 20
const DEFAULT_LIMIT = 20
const MOST_PER_PAGE = 200
const WATCH_HELP = `  --watch             print the progress until the operation has ended or is paused
${INTERVAL_HELP}`

/**
 * The command-line option that sets each member of the request. If the request's schema rejects a member, the error
 * message names this option.
 */
const optionOf = {
  Action: '--action',
  Process: '--process',
  Ids: '--id',
  FromStep: '--from-step',
  PerSecond: '--per-second',
} as const

export const startOperation: Command = {
  summary: 'resume, cancel, replay, retry or take back many runs',
  usage:
    '--action ACTION --process NAME (filter options | --id ID… | --every-run) --reason TEXT [--dry-run] [--watch]',
  help: `Starts one action on many runs. The coordinators carry it out in the background, also after this command has ended
and after they were restarted. Runs whose state does not allow the action are skipped. The action log has an entry for
each run.

The action take-back deletes what all runs of each transaction have created in the books of their companies, payments
before their invoices, and makes customers and other objects of lists inactive. It leaves what a person has changed, what
is paid or linked, what lies in a closed period, what is gone and what belongs to runs that are active or in doubt, and
lists it. A dry run names every object.

  --action ACTION     ${bulkActions.join(', ')}
  --process NAME      the process of the runs
${FILTER_HELP}
  --id ID             the latest run of this transaction, instead of a filter; may be repeated
  --every-run         every run of the process; needed if neither a filter nor --id is given
  --from-step STEP    with --action replay: start at this step
  --reason TEXT       why, for the action log (at most 500 characters)
  --per-second N      the maximum number of runs per second (default 50, at most 1000)
  --dry-run           change nothing, but count the runs and name the first of them; implies --watch
${WATCH_HELP}

Exit code 1: with --watch, some runs failed, or the operation was stopped or paused.

Examples:
  integration-host operations start --action resume --process OrderProcess --status failed --class http_503 \\
    --since 2h --reason 'the API is back' --dry-run
  integration-host operations start --action cancel --process OrderProcess --realm 77 --status retrying,waiting \\
    --reason 'the company has left' --per-second 10 --watch
  integration-host operations start --action take-back --process InvoiceExport --realm 77 --since 12h \\
    --reason 'the import of last night was wrong' --dry-run`,
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
    const filter = filterOf(values, terminal.wallClock())
    const isFiltered = Object.keys(filter).length > 0
    const ways = [isFiltered, values.id !== undefined, values['every-run'] === true]
    if (ways.filter(Boolean).length !== 1)
      throw new UsageError('Select the runs: give filter options, --id or --every-run')
    for (const option of ['action', 'process', 'reason'] as const)
      if (values[option] === undefined) throw new UsageError(`--${option} is needed`)
    const perSecond = values['per-second']
    const request = StartOperation.safeParse({
      Action: values.action,
      Process: values.process,
      ...(values.id === undefined
        ? { Filter: filter }
        : { Ids: values.id.map((id) => transactionId('--id', id)) }),
      ...(values['from-step'] !== undefined && { FromStep: values['from-step'] }),
      Reason: reasonOf(values.reason),
      ...(perSecond !== undefined && { PerSecond: wholeNumber('--per-second', perSecond) }),
      DryRun: values['dry-run'] === true,
    })
    if (!request.success) {
      const option = optionOf[request.error.issues[0]?.path[0] as keyof typeof optionOf]
      throw invalidOption(option, request.error)
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
  summary: 'show the progress of a bulk operation, and which runs failed',
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
    const objects = await objectsOf(service, operation)
    await print(terminal, ...outputOf(operation, objects, values.json))
    return exitCodes.ok
  },
}

export const listOperations: Command = {
  summary: 'list bulk operations, the newest first',
  usage: '[--limit N]',
  help: `Lists bulk operations, the newest first. With --json each line is one operation.

  --limit N           the maximum number (default ${DEFAULT_LIMIT})

Examples:
  integration-host operations list
  integration-host operations list --limit 100 --json | jq -r 'select(.Status == "Paused") | .ID'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, { limit: { type: 'string' } })
    expectNone(positionals)
    const limit = limitOf(values, DEFAULT_LIMIT)
    const service = openCoordinator(values.url, terminal)
    const list = { path: '/operations', schema: OperationPage, limit, mostPerPage: MOST_PER_PAGE }
    const paintCell = statusPainter(terminal, COLUMNS, colours)
    const format = { isJson: values.json, columns: COLUMNS, rowOf, paintCell }
    const next = await printPages(pagesOf(service, list), format, terminal)
    if (next !== null) notify(terminal, 'There are more: --limit.')
    return exitCodes.ok
  },
}

const change = (action: 'stop' | 'continue', description: string, done: string) =>
  ({
    usage: 'ID',
    help: [description, `operations ${action} 3e0c… --reason 'as agreed with Ada'`],
    pathOf: (positionals: readonly string[]) => `${pathOf(operationId(positionals))}/${action}`,
    response: OperationView,
    done: (operation: OperationView) =>
      `Operation ${operation.ID} ${done}: ${progressOf(operation)}.`,
  }) as const

export const stopOperation = changeCommand({
  ...change(
    'stop',
    'Stops a bulk operation permanently. Its changes are not undone. For up to 0.2 s it may still change runs.',
    'is stopped',
  ),
  summary: 'stop a bulk operation permanently',
})

export const continueOperation = changeCommand({
  ...change(
    'continue',
    `Continues a bulk operation that was paused because 20 runs in a row failed with the same 5xx. These runs are tried
again. Fix the cause first; operations show names the code.`,
    'continues',
  ),
  summary: 'continue a bulk operation that was paused after many failures',
})

const pathOf = (id: string): string => `/operations/${encodeURIComponent(id)}`

/**
 * Returns the only positional argument, the id of an operation.
 *
 * @throws {UsageError} the id is missing, or there are further arguments.
 */
function operationId(positionals: readonly string[]): string {
  const [id, ...rest] = positionals
  if (id === undefined)
    throw new UsageError('The id of an operation is needed; operations list prints it')
  expectNone(rest)
  return id
}

/** Prints the progress of an operation until it has ended or is paused. Resolves with the exit code. */
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
  const poll = async (): Promise<boolean> => {
    const operation = await service.get(pathOf(id), OperationDetail)
    last = operation
    // The objects may be many, so they are read only when all of them are known.
    const objects = operation.Status === 'Running' ? null : await objectsOf(service, operation)
    const isPending = objects?.some(({ Outcome }) => Outcome === 'pending') === true
    const isRunning =
      operation.Status === 'Running' || (operation.Status === 'Completed' && isPending)
    const progress = plain(`${operation.Status}: ${progressOf(operation)}`)
    if (isJson) {
      if (!isRunning) await print(terminal, ...outputOf(operation, objects, true))
    } else if (isRedrawn) await draw(outputOf(operation, objects))
    else if (!isRunning) await print(terminal, ...outputOf(operation, objects))
    else if (progress !== printed) await print(terminal, progress)
    printed = progress
    return isRunning
  }
  await repeat(intervalMs, terminal, poll, isRedrawn ? (message) => draw([message]) : undefined)
  // The cast is needed because TypeScript does not see that `poll` has assigned `last`.
  const ended = last as OperationDetail | null
  return ended?.Status === 'Completed' && ended.Failed === 0 ? exitCodes.ok : exitCodes.failed
}

function outputOf(
  operation: OperationDetail,
  objects: readonly TakenObject[] | null,
  isJson?: boolean,
): string[] {
  if (isJson)
    return [JSON.stringify({ ...operation, ...(objects !== null && { Objects: objects }) })]
  return [...linesOf(operation), ...objectLinesOf(operation, objects ?? [])]
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
    ['Paused by', operation.StatusReason],
    ['Progress', progressOf(operation)],
    ['Failed', codes.join(', ')],
    ['Started by', operation.Person ?? keyName(operation.KeyID)],
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

/** Returns an empty line and then the lines of a table of the first runs. If there are no runs, returns no lines. */
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
    ...(more > 0 ? [`… and ${more} more (--json prints all)`] : []),
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
  operation.Person ?? keyName(operation.KeyID),
  operation.Reason ?? '',
]
