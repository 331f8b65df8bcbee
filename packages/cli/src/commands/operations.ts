/** The commands of bulk operations: one action on many runs. */
import { keyName } from '@integration-host/shared/access/key-list'
import {
  bulkActions,
  OperationDetail,
  OperationPage,
  OperationView,
  StartOperation,
  type TakenObject,
  TakenObjectPage,
} from '@integration-host/shared/contracts/operations'
import {
  defineCommand,
  flags,
  invalidOption,
  lists,
  onlyWord,
  texts,
  wholeNumber,
} from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { labelledLines } from '../fault-lines.ts'
import { pagedList, pagesOf } from '../paging.ts'
import { openCoordinator, type ServiceApi } from '../service-api.ts'
import { type Columns, counted, createTable, plain, print, type Terminal } from '../terminal.ts'
import { changeCommand } from '../service-command.ts'
import { createScreen, INTERVAL_HELP, intervalOf, repeat, watchOptions } from '../watch.ts'
import { reasonOf, reasonOption, transactionId } from './transactions/arguments.ts'
import { FILTER_HELP, filterOf, filterOptions } from './transactions/filter-options.ts'

/** The maximum number of runs, and of objects, that are printed one by one. `--json` prints all that are listed. */
const MAX_PRINTED = 20
const DEFAULT_LIMIT = 20
/** The maximum number of objects that are read. */
const MAX_OBJECTS = 100_000
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

export const startOperation = defineCommand({
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
  options: {
    ...filterOptions,
    ...reasonOption,
    ...watchOptions,
    ...texts('action', 'process', 'from-step', 'per-second'),
    ...lists('id'),
    ...flags('every-run', 'dry-run'),
  },
  async run({ values, terminal, output }) {
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
    const { ID } = started
    if (values.watch || values['dry-run'])
      return watchOperation(service, ID, { intervalMs, isJson: values.json }, terminal)
    await output(
      started,
      plain(`Operation ${ID} is started: integration-host operations show ${ID}`),
    )
    return exitCodes.ok
  },
})

export const showOperation = defineCommand({
  summary: 'show the progress of a bulk operation, and which runs failed',
  usage: 'ID [--watch]',
  help: `Shows a bulk operation with its counts, and the first runs that failed.

${WATCH_HELP}

Examples:
  integration-host operations show 3e0c… --watch
  integration-host operations show 3e0c… --json | jq -r '.Failures[] | [.TransactionID, .Code] | @tsv'`,
  options: watchOptions,
  argumentOf: operationId,
  async run({ values, argument: id, terminal }) {
    const intervalMs = intervalOf(values.interval)
    const service = openCoordinator(values.url, terminal)
    if (values.watch)
      return watchOperation(service, id, { intervalMs, isJson: values.json }, terminal)
    const operation = await service.get(pathOf(id), OperationDetail)
    const objects = await objectsOf(service, operation)
    await print(terminal, ...outputOf(operation, objects, values.json))
    return exitCodes.ok
  },
})

export const listOperations = pagedList({
  summary: 'list bulk operations, the newest first',
  usage: '[--limit N]',
  help: `Lists bulk operations, the newest first. With --json each line is one operation.

  --limit N           the maximum number (default ${DEFAULT_LIMIT})

Examples:
  integration-host operations list
  integration-host operations list --limit 100 --json | jq -r 'select(.Status == "Paused") | .ID'`,
  options: texts('limit'),
  pathOf: () => '/operations',
  schema: OperationPage,
  defaultLimit: DEFAULT_LIMIT,
  mostPerPage: MOST_PER_PAGE,
  columns: {
    ID: 'ID',
    ACTION: ({ Action, DryRun }) => `${Action}${DryRun ? ' (dry)' : ''}`,
    PROCESS: 'Process',
    STATUS: 'Status',
    DONE: 'Done',
    SKIPPED: 'Skipped',
    FAILED: 'Failed',
    STARTED: 'CreatedAt',
    BY: ({ Person, KeyID }) => Person ?? keyName(KeyID),
    REASON: 'Reason',
  },
  colours: { Completed: 'green', Paused: 'red', Running: 'yellow', Stopped: 'dim' },
  more: () => '--limit',
})

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

/** Returns the only positional argument, the id of an operation. @throws {UsageError} as {@link onlyWord} */
function operationId(words: readonly string[]): string {
  return onlyWord(words, 'The id of an operation is needed; operations list prints it')
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
  const header = labelledLines([
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
  ])
  return [
    ...header,
    ...firstItems(Failures, { FAILED: 'TransactionID', REPLAY: 'ReplayID', CODE: 'Code' }),
    ...firstItems(Matches, {
      'WOULD CHANGE': 'TransactionID',
      REPLAY: 'ReplayID',
      STATUS: 'Status',
    }),
  ]
}

/** Returns an empty line and then the lines of a table of the first items. If there are none, returns no lines. */
function firstItems<Item>(items: readonly Item[], columns: Columns<Item>): string[] {
  if (items.length === 0) return []
  const more = items.length - MAX_PRINTED
  return [
    '',
    ...createTable(columns)(items.slice(0, MAX_PRINTED)),
    ...(more > 0 ? [`… and ${more} more (--json prints all)`] : []),
  ]
}

/** Reads the objects of an operation that takes back; `null` for other operations. */
async function objectsOf(
  service: ServiceApi,
  { ID, Action }: OperationView,
): Promise<readonly TakenObject[] | null> {
  if (Action !== 'take-back') return null
  const objects: TakenObject[] = []
  const path = `${pathOf(ID)}/objects`
  const list = { path, schema: TakenObjectPage, limit: MAX_OBJECTS, mostPerPage: MOST_PER_PAGE }
  for await (const page of pagesOf(service, list)) objects.push(...page)
  return objects
}

/** Returns the totals by entity and outcome, and the first objects that are left. */
function objectLinesOf({ DryRun }: OperationView, objects: readonly TakenObject[]): string[] {
  if (objects.length === 0) return []
  const TOTAL = 'in total'
  const outcomeOf = ({ Outcome, Reason }: TakenObject): string =>
    Reason === null ? Outcome : `${Outcome}: ${Reason}`
  const totals = new Map<string, { entity: string; outcome: string; count: number }>()
  for (const object of objects)
    for (const entity of [object.Entity, TOTAL]) {
      const outcome = outcomeOf(object)
      const key = `${entity === TOTAL ? 1 : 0}${entity}\t${outcome}`
      totals.set(key, { entity, outcome, count: (totals.get(key)?.count ?? 0) + 1 })
    }
  const rows = [...totals].toSorted(([a], [b]) => a.localeCompare(b)).map(([, row]) => row)
  return [
    '',
    ...createTable<(typeof rows)[number]>({
      ENTITY: 'entity',
      [DryRun ? 'WOULD BE' : 'IS']: 'outcome',
      COUNT: 'count',
    })(rows),
    ...firstItems(
      objects.filter(({ Outcome }) => Outcome === 'left' || Outcome === 'failed'),
      {
        LEFT: ({ Entity, EntityID }) => `${Entity} ${EntityID}`,
        REALM: 'Realm',
        WHY: 'Reason',
        'CHANGED FIELDS': ({ Fields }) => Fields?.join(', '),
      },
    ),
  ]
}
