/** The commands that change a run: resume, undo, cancel, retry, settle, signal, link and replay. */
import type { ParseArgsOptionsConfig } from 'node:util'
import { keyName } from '@integration-host/shared/access/key-list'
import { DecidingPerson, DecisionLink } from '@integration-host/shared/contracts/decision'
import { SignalResponse } from '@integration-host/shared/contracts/run'
import type { z } from 'zod'
import {
  type Command,
  type Definition,
  defineCommand,
  type Given,
  texts,
  validOption,
  wholeNumber,
} from '../../command.ts'
import { UsageError } from '../../exit-code.ts'
import { openCoordinator } from '../../service-api.ts'
import { plain } from '../../terminal.ts'
import { timeOf } from '../../times.ts'
import {
  Header,
  jsonOf,
  oneId,
  pathOf,
  PROCESS_HELP,
  processOption,
  REASON_HELP,
  reasonOf,
  reasonOption,
  replayQuery,
} from './arguments.ts'

const REPLAY_HELP = '  --replay N          the ReplayID of the run (default: the latest run)'
const IF_VERSION_HELP =
  '  --if-version N      only if the run still has this version, which transactions show prints; give --replay too'
const runOptions = { ...processOption, ...reasonOption, ...texts('replay', 'if-version') }

interface RunChange<
  Options extends ParseArgsOptionsConfig,
  Argument extends { readonly id: string },
  Response,
> extends Pick<Command, 'summary' | 'usage'> {
  readonly help: {
    readonly description: string
    /** The lines of the options that only this command has. */
    readonly options?: string
    readonly replay?: string
    readonly examples: readonly string[]
  }
  readonly options: Options
  /** Returns the id of the transaction, and further arguments. */
  readonly argumentOf: NonNullable<Definition<Options, Argument>['argumentOf']>
  /** Returns the path below that of the transaction, and the members of the body. @throws {UsageError} */
  readonly requestOf: (given: Given<Options & typeof runOptions, Argument>) => {
    readonly path: string
    readonly body?: object
  }
  readonly response: z.ZodType<Response>
  /** Returns the line that the command prints after the change. */
  readonly done: (response: Response, argument: Argument) => string
}

/** Creates a command that changes one run. */
const runCommand = <
  const Options extends ParseArgsOptionsConfig,
  Argument extends { readonly id: string },
  Response,
>({
  summary,
  usage,
  help: { description, options: optionsHelp, replay = REPLAY_HELP, examples },
  options,
  argumentOf,
  requestOf,
  response,
  done,
}: RunChange<Options, Argument, Response>): Command =>
  defineCommand({
    summary,
    usage,
    help: [
      `${description}\n`,
      PROCESS_HELP,
      ...(optionsHelp === undefined ? [] : [optionsHelp]),
      replay,
      REASON_HELP,
      `${IF_VERSION_HELP}\n`,
      'Examples:',
      ...examples.map((example) => `  integration-host ${example}`),
    ].join('\n'),
    options: { ...runOptions, ...options },
    argumentOf,
    async run(given) {
      const { argument, terminal, output } = given
      // The cast is needed because the other options are a type parameter.
      const values = given.values as Given<typeof runOptions>['values']
      const { path, body } = requestOf(given as Given<Options & typeof runOptions, Argument>)
      const query = replayQuery(values.replay)
      const version = values['if-version']
      const ifVersion = version === undefined ? version : wholeNumber('--if-version', version)
      const Reason = reasonOf(values.reason)
      const service = openCoordinator(values.url, terminal)
      const at = `${await pathOf(service, values.process)}/${encodeURIComponent(argument.id)}`
      const request = { Reason, ...body }
      const changed = await service.post(`${at}/${path}${query}`, request, response, { ifVersion })
      await output(changed, plain(done(changed, argument)))
    },
  })

const idOf = (words: readonly string[]) => ({ id: oneId(words) })

/** Creates a command that consists of the name of the action. */
const action = (
  path: string,
  summary: string,
  [description, ...examples]: readonly [description: string, ...examples: string[]],
  done: string,
): Command =>
  runCommand({
    summary,
    usage: 'ID [--replay N] [--reason TEXT] [--if-version N]',
    help: { description, examples },
    options: {},
    argumentOf: idOf,
    requestOf: () => ({ path }),
    response: Header,
    done: ({ TransactionID, ReplayID, StepName }) =>
      `${TransactionID} ${done} ${StepName}, in run ${ReplayID}.`,
  })

export const resume = action(
  'resume',
  'continue a failed or cancelled run',
  [
    'Continues a failed or cancelled run at its step, with the same ReplayID and the same idempotency keys.',
    'transactions resume 66',
    'operations start --action resume --process OrderProcess --status failed --reason …   # many runs',
  ],
  'continues at step',
)

export const undo = action(
  'undo',
  'undo the finished steps of a run, the last one first',
  [
    `Undoes the finished steps of a failed, cancelled or completed run, the last one first. Steps without an undo are left and
named. A run whose undo has failed goes on with "transactions resume".`,
    "transactions undo 66 --reason 'the customer has cancelled the order'",
  ],
  'is being undone from step',
)

export const cancel = action(
  'cancel',
  'stop a run',
  [
    'Stops a run and aborts its call in flight. The run can be resumed.',
    'transactions cancel 66',
    "transactions cancel 66 --replay 0 --if-version 5 --reason 'duplicate of 65'",
  ],
  'is cancelled at',
)

export const retry = action(
  'retry',
  'start the next attempt of a waiting run now',
  [
    'Makes the next attempt of a run due now. The run must be Retrying or Waiting.',
    "transactions retry 66 --reason 'the API is back'",
  ],
  'is due now at step',
)

export const settle = runCommand({
  summary: 'record whether a step in doubt was done, and continue the run',
  usage: 'ID --outcome (done [--data JSON] | not_done) --reason TEXT [--replay N] [--if-version N]',
  help: {
    description: `Settles a step in doubt: an earlier attempt may have done its work. Check at the target whether it did. With the
outcome done the step is completed with --data, and the next step is due. With not_done the step is due again. A failed
or cancelled run continues as well.`,
    options: `  --outcome OUTCOME   done or not_done
  --data JSON         with done: the data of the step, which later steps read (default: null)`,
    examples: [
      `transactions settle 66 --outcome done --data '{"InvoiceId": "130"}' --reason 'found in QuickBooks'`,
      "transactions settle 66 --outcome not_done --reason 'the customer does not exist there'",
    ],
  },
  options: texts('outcome', 'data'),
  argumentOf: idOf,
  requestOf({ values: { outcome: Outcome, data, reason } }) {
    if (Outcome !== 'done' && Outcome !== 'not_done')
      throw new UsageError('--outcome must be done or not_done')
    if (data !== undefined && Outcome === 'not_done')
      throw new UsageError('--data needs --outcome done')
    if (reason === undefined) throw new UsageError('--reason is needed')
    return { path: 'settle', body: { Outcome, Data: jsonOf(data) } }
  },
  response: Header,
  done: ({ TransactionID, ReplayID, Status, StepName }) =>
    `${TransactionID} is settled, in run ${ReplayID}: ${Status} at ${StepName}.`,
})

/** Returns the arguments of a command on an event. @throws {UsageError} one is missing or invalid, or there are more. */
function eventOf([given, name, ...rest]: readonly string[]) {
  const id = oneId([given, ...rest].filter((text) => text !== undefined))
  if (name === undefined) throw new UsageError('The name of the event is needed')
  return { id, name, path: `events/${encodeURIComponent(name)}` }
}

export const signal = runCommand({
  summary: 'send an event to a run that waits for it',
  usage: 'ID NAME [--data JSON] [--event-id ID] [--replay N] [--reason TEXT] [--if-version N]',
  help: {
    description: `Sends an event to a run, such as an approval. A run keeps one event for each name: the first. It may arrive before
the run waits for it. Needs the scope transactions:signal.`,
    options: `  --data JSON         the data of the event (default: null)
  --event-id ID       a second event with this id is a repetition, and not an error`,
    examples: [
      `transactions signal 66 approved --data '{"approved": true}' --reason 'agreed with Ada'`,
    ],
  },
  options: texts('event-id', 'data'),
  argumentOf: eventOf,
  requestOf: ({ values: { 'event-id': EventID, data }, argument: { path } }) => ({
    path,
    body: { EventID, Data: jsonOf(data) },
  }),
  response: SignalResponse.loose(),
  done({ ReplayID, Item }, { id, name }) {
    const { KeyID = '', Person = null } = Item.Sender ?? {}
    return `Run ${ReplayID} of ${id} has the event ${name} from ${Person ?? keyName(KeyID)}, received at ${Item.FinishedAt}.`
  },
})

export const link = runCommand({
  summary: 'create the address at which a person decides about an event',
  usage: 'ID NAME --for PERSON [--expires WHEN] [--replay N] [--reason TEXT] [--if-version N]',
  help: {
    description: `Creates the address of the page on which a person decides about an event of a run, and prints it. Who has the address
decides as this person, once. It is void when the run is over or replayed. Needs the scope transactions:signal.`,
    options: `  --for PERSON        who decides: a name or an e-mail address
  --expires WHEN      until when the address can be used, like 12h, or a time (default: 7d; at most the event's timeout)`,
    examples: [
      'transactions link 66 approved --for ada@example.com',
      'transactions link 66 approved --for ada@example.com --expires 12h',
    ],
  },
  options: texts('for', 'expires'),
  argumentOf: eventOf,
  requestOf({ values, argument, terminal }) {
    if (values.for === undefined) throw new UsageError('--for is needed')
    const For = validOption('--for', DecidingPerson, values.for)
    const now = terminal.wallClock()
    const until = values.expires && timeOf('--expires', values.expires, now, 'future')
    const ExpiresInSeconds = until && Math.ceil((Date.parse(until) - now) / 1_000)
    if (ExpiresInSeconds && ExpiresInSeconds < 1)
      throw new UsageError('--expires must be in the future')
    return { path: `${argument.path}/links`, body: { For, ...(until && { ExpiresInSeconds }) } }
  },
  response: DecisionLink,
  done: ({ Url }) => Url,
})

export const replay = runCommand({
  summary: 'run a transaction again, with the same or other initial data',
  usage: 'ID [--from-step STEP] [--data JSON] [--replay N] [--reason TEXT] [--if-version N]',
  help: {
    description:
      'Runs a transaction again with a new ReplayID and new idempotency keys. Rejected while a run is active.',
    options: `  --from-step STEP    start at this step, with the results of the earlier steps from the latest run
  --data JSON         the initial data of the new run (default: that of the latest run)`,
    replay: '  --replay N          only if this is still the latest run',
    examples: [
      'transactions replay 66',
      'transactions replay 66 --from-step csv',
      `transactions replay 66 --data '{"Amount": 12.5}' --reason 'the amount was wrong'`,
    ],
  },
  options: texts('from-step', 'data'),
  argumentOf: idOf,
  requestOf: ({ values: { 'from-step': fromStep, data } }) => ({
    path: 'replays',
    body: { fromStep, InitialData: jsonOf(data) },
  }),
  response: Header,
  done: ({ TransactionID, ReplayID }) => `${TransactionID} is queued as run ${ReplayID}.`,
})
