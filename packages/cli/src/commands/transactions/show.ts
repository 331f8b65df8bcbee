import { type FamilyView, RunDetailResponse } from '@integration-host/shared/contracts/run'
import {
  type AttemptView,
  type ItemView,
  StepReport,
  TransactionView,
} from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import { defineCommand, flags, texts } from '../../command.ts'
import { labelledLines } from '../../fault-lines.ts'
import { openCoordinator } from '../../service-api.ts'
import { type Columns, createTable, plain, widthOf } from '../../terminal.ts'
import {
  forOperators,
  type Header,
  oneId,
  pathOf,
  PROCESS_HELP,
  processOption,
  replayQuery,
} from './arguments.ts'
import { responseLines, shortened } from './response-lines.ts'

const Run = TransactionView.extend({
  ...forOperators,
  LeaseOwner: z.string().nullish(),
  LeaseUntil: z.string().nullish(),
  Tags: z.record(z.string(), z.string()).nullish(),
  ConcurrencyKey: z.string().nullable().optional(),
  Priority: z.string().optional(),
  InputChanged: z.boolean().optional(),
  Parent: RunDetailResponse.shape.Parent,
  Children: RunDetailResponse.shape.Children,
  DeadlineAt: z.string().nullish(),
  ErasedAt: z.string().nullish(),
  PurgedAt: z.string().nullish(),
  AttemptCount: z.int().optional(),
}).loose()
type Run = z.output<typeof Run>

export const showTransaction = defineCommand({
  summary: 'show one run with its steps and attempts',
  usage: 'ID [--replay N] [--full]',
  help: `Shows one run of a transaction with its steps and attempts. For each step that is not completed it shows the
response: the provider's error messages first, then the body.

${PROCESS_HELP}
  --replay N          the ReplayID of the run (default: the latest run)
  --full              show initial data and responses in full instead of their first 1,024 characters

Examples:
  integration-host transactions show 66
  integration-host transactions show 66 --full | less
  integration-host transactions show 66 --replay 0 --json | jq '.Items[].ResponseBody'`,
  options: { ...processOption, ...texts('replay'), ...flags('full') },
  argumentOf: oneId,
  async run({ values, argument: id, terminal, output }) {
    const query = replayQuery(values.replay)
    const service = openCoordinator(values.url, terminal)
    const path = await pathOf(service, values.process)
    const run = await service.get(`${path}/${encodeURIComponent(id)}${query}`, Run)
    const { Items, Attempts, AttemptCount = 0 } = run
    const isFull = values.full === true
    const width = isFull ? undefined : widthOf(terminal)
    await output(
      run,
      ...headerLines(run, isFull),
      ...(Items.length > 0 ? ['', ...createTable(itemColumns, width)(Items)] : []),
      ...Items.filter(hasUnsuccessfulResponse).flatMap((item) => [
        '',
        ...responseBlock(item, Attempts, isFull),
      ]),
      ...(Attempts.length > 0 ? ['', ...createTable(attemptColumns, width)(Attempts)] : []),
      ...(AttemptCount > Attempts.length
        ? [`These are the newest ${Attempts.length} of ${AttemptCount} attempts.`]
        : []),
    )
  },
})

const itemColumns: Columns<ItemView> = {
  STEP: 'StepName',
  STATUS: ({ Status, Round }) => (Round === undefined ? Status : `${Status}, round ${Round}`),
  ATTEMPT: 'Attempt',
  RESPONSE: 'ResponseStatus',
  FINISHED: 'FinishedAt',
  ERROR: 'Error',
}

const attemptColumns: Columns<AttemptView> = {
  ATTEMPT: 'Attempt',
  STEP: 'StepName',
  OUTCOME: 'Outcome',
  RESPONSE: 'ResponseStatus',
  STARTED: 'StartedAt',
  FINISHED: 'FinishedAt',
  ERROR: 'Error',
}

const hasUnsuccessfulResponse = ({ Status, ResponseStatus }: ItemView): boolean =>
  Status !== 'Completed' && Status !== 'Copied' && ResponseStatus !== null

/**
 * Returns the lines that describe the response of a step that is not completed. The lines include the id that the
 * provider has given to the response.
 */
function responseBlock(
  { StepName, ResponseStatus, ResponseBody }: ItemView,
  attempts: readonly AttemptView[],
  isFull: boolean,
): string[] {
  const attempt = attempts.findLast((one) => one.StepName === StepName)
  const details = labelledLines([
    ['Request', attempt?.Request && `${attempt.Request.Method} ${attempt.Request.Url}`],
    ['Response id', attempt?.ResponseId],
    ['Trace id', attempt?.TraceId],
  ])
  return [
    plain(`Response of step ${StepName}: ${ResponseStatus}`),
    ...details.map((line) => `  ${line}`),
    ...(ResponseBody ? responseLines(ResponseBody, isFull).map((line) => `  ${line}`) : []),
  ]
}

/**
 * Returns a text with the time until which a step delays the run with `waitFor`; `null` if no `waitFor` delays the run.
 * During such a delay the run has the status `Retrying`, although its step has not failed.
 */
const waitOf = ({ Status, ErrorClass, NextAttemptAt }: Header): string | null =>
  Status === 'Retrying' && ErrorClass === 'step_waits'
    ? `the time that its step chose with waitFor: ${NextAttemptAt ?? 'now'}`
    : null

/** Returns the progress that the due step has reported; `null` if it has reported none. */
function progressOf({ Items, StepName }: Run): string | null {
  const { data } = StepReport.safeParse(Items.find((item) => item.StepName === StepName)?.Report)
  if (data === undefined) return null
  return `${data.Done} of ${data.Of}${data.Note === null ? '' : `: ${data.Note}`}`
}

const parentOf = ({ Parent }: Run): string | null =>
  Parent === undefined
    ? null
    : `${Parent.TransactionID} of ${Parent.Process}, replay ${Parent.ReplayID}, place ${Parent.Place}`

const countsOf = (family: FamilyView): string =>
  `${family.Place}: ${family.Total} of ${family.Process}: ${family.Completed} completed, ${family.Failed} failed, ` +
  `${family.Active} active${family.IsLoaded ? '' : ' (the process is not loaded)'}`

function headerLines(header: Run, isFull: boolean): string[] {
  const wait = waitOf(header)
  return labelledLines([
    ['Transaction', header.TransactionID],
    ['Process', header.Process],
    [
      'Began with',
      header.DefinitionVersion && `version ${header.DefinitionVersion} of the process`,
    ],
    ['Replay', String(header.ReplayID)],
    ['Changes', `${header.Version} (the number that --if-version expects)`],
    ['Status', header.Status],
    ['Step', header.StepName],
    ['Initial data', shortened(JSON.stringify(header.InitialData), isFull)],
    ['', header.InputChanged ? 'differs from that of the previous run' : null],
    [
      'Tags',
      Object.entries(header.Tags ?? {})
        .map((pair) => pair.join('='))
        .join(', '),
    ],
    ['Realm', header.Realm],
    ['Parent', parentOf(header)],
    ['Priority', header.Priority === 'normal' ? null : header.Priority],
    ['Concurrency key', header.ConcurrencyKey],
    ['Runs at', header.LeaseOwner && `${header.LeaseOwner}, lease until ${header.LeaseUntil}`],
    ['In doubt', header.InDoubt ? 'an earlier attempt may have done the work of this step' : null],
    ['Progress', progressOf(header)],
    ...(header.Children ?? []).map((family) => ['Children', countsOf(family)] as const),
    ['Waits for', header.WaitingFor ?? wait],
    ['Not before', header.NotBefore],
    ['Next attempt', header.NextAttemptAt],
    ['Deadline', header.DeadlineAt],
    ['Error class', wait === null ? header.ErrorClass : null],
    ['Error', wait === null ? header.LastError : null],
    ['Created', header.CreatedAt],
    ['Updated', header.UpdatedAt],
    ['Completed', header.CompletedAt],
    ['Data erased', header.ErasedAt],
    ['Data removed', header.PurgedAt],
  ])
}
