/** The commands that change a run: resume, undo, cancel, retry, settle, signal, link and replay. */
import { keyName } from '@integration-host/shared/access/key-list'
import { DecidingPerson, DecisionLink } from '@integration-host/shared/contracts/decision'
import { SignalResponse } from '@integration-host/shared/contracts/run'
import { type Command, parse, validOption } from '../../command.ts'
import { exitCodes, UsageError } from '../../exit-code.ts'
import { openCoordinator } from '../../service-api.ts'
import { plain, print } from '../../terminal.ts'
import { timeOf } from '../../times.ts'
import {
  ACT_HELP,
  actOf,
  actOptions,
  Header,
  jsonOf,
  oneId,
  pathOf,
  printOutcome,
  PROCESS_HELP,
  processOption,
  replayQuery,
} from './arguments.ts'

/** Creates a command that changes one run and prints the new state of the run. */
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
      const { values, positionals } = parse(args, {
        ...processOption,
        ...actOptions,
        replay: { type: 'string' },
      })
      const id = oneId(positionals)
      const query = replayQuery(values.replay)
      const { body, options } = actOf(values)
      const service = openCoordinator(values.url, terminal)
      const at = `${await pathOf(service, values.process)}/${encodeURIComponent(id)}`
      const header = await service.post(`${at}/${path}${query}`, body, Header, options)
      await printOutcome(terminal, header, values.json, done(header))
      return exitCodes.ok
    },
  }
}

export const resume = action(
  {
    summary: 'continue a failed or cancelled run',
    usage: 'ID [--replay N] [--reason TEXT] [--if-version N]',
    help: `Continues a failed or cancelled run at its step, with the same ReplayID and the same idempotency keys.

${PROCESS_HELP}
  --replay N          the ReplayID of the run (default: the latest run)
${ACT_HELP}

Examples:
  integration-host transactions resume 66
  integration-host operations start --action resume --process OrderProcess --status failed --reason …   # many runs`,
  },
  'resume',
  ({ TransactionID: id, ReplayID: replay, StepName }) =>
    `${id} continues at step ${StepName}, in run ${replay}.`,
)

export const undo = action(
  {
    summary: 'undo the finished steps of a run, the last one first',
    usage: 'ID [--replay N] [--reason TEXT] [--if-version N]',
    help: `Undoes the finished steps of a failed, cancelled or completed run, the last one first. Steps without an undo are left and
named. A run whose undo has failed goes on with "transactions resume".

${PROCESS_HELP}
  --replay N          the ReplayID of the run (default: the latest run)
${ACT_HELP}

Examples:
  integration-host transactions undo 66 --reason 'the customer has cancelled the order'`,
  },
  'undo',
  ({ TransactionID: id, ReplayID: replay, StepName }) =>
    `${id} is being undone from step ${StepName}, in run ${replay}.`,
)

export const cancel = action(
  {
    summary: 'stop a run',
    usage: 'ID [--replay N] [--reason TEXT] [--if-version N]',
    help: `Stops a run and aborts its call in flight. The run can be resumed.

${PROCESS_HELP}
  --replay N          the ReplayID of the run (default: the latest run)
${ACT_HELP}

Examples:
  integration-host transactions cancel 66
  integration-host transactions cancel 66 --replay 0 --if-version 5 --reason 'duplicate of 65'`,
  },
  'cancel',
  ({ TransactionID: id, ReplayID: replay, StepName }) =>
    `${id} is cancelled at ${StepName}, in run ${replay}.`,
)

export const retry = action(
  {
    summary: 'start the next attempt of a waiting run now',
    usage: 'ID [--replay N] [--reason TEXT] [--if-version N]',
    help: `Makes the next attempt of a run due now. The run must be Retrying or Waiting.

${PROCESS_HELP}
  --replay N          the ReplayID of the run (default: the latest run)
${ACT_HELP}

Examples:
  integration-host transactions retry 66 --reason 'the API is back'`,
  },
  'retry',
  ({ TransactionID: id, ReplayID: replay, StepName }) =>
    `${id} is due now at step ${StepName}, in run ${replay}.`,
)

export const settle: Command = {
  summary: 'record whether a step in doubt was done, and continue the run',
  usage: 'ID --outcome (done [--data JSON] | not_done) --reason TEXT [--replay N] [--if-version N]',
  help: `Settles a step in doubt: an earlier attempt may have done its work. Check at the target whether it did. With the
outcome done the step is completed with --data, and the next step is due. With not_done the step is due again. A failed
or cancelled run continues as well.

${PROCESS_HELP}
  --outcome OUTCOME   done or not_done
  --data JSON         with done: the data of the step, which later steps read (default: null)
  --replay N          the ReplayID of the run (default: the latest run)
${ACT_HELP}

Examples:
  integration-host transactions settle 66 --outcome done --data '{"InvoiceId": "130"}' --reason 'found in QuickBooks'
  integration-host transactions settle 66 --outcome not_done --reason 'the customer does not exist there'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      ...processOption,
      ...actOptions,
      replay: { type: 'string' },
      outcome: { type: 'string' },
      data: { type: 'string' },
    })
    const id = oneId(positionals)
    const query = replayQuery(values.replay)
    const { body, options } = actOf(values)
    const { outcome: Outcome } = values
    if (Outcome !== 'done' && Outcome !== 'not_done')
      throw new UsageError('--outcome must be done or not_done')
    if (values.data !== undefined && Outcome === 'not_done')
      throw new UsageError('--data needs --outcome done')
    if (body.Reason === undefined) throw new UsageError('--reason is needed')
    const Data = values.data === undefined ? undefined : jsonOf(values.data)
    const service = openCoordinator(values.url, terminal)
    const at = `${await pathOf(service, values.process)}/${encodeURIComponent(id)}`
    const request = { ...body, Outcome, Data }
    const header = await service.post(`${at}/settle${query}`, request, Header, options)
    const text = `${header.TransactionID} is settled, in run ${header.ReplayID}: ${header.Status} at ${header.StepName}.`
    await printOutcome(terminal, header, values.json, text)
    return exitCodes.ok
  },
}

export const signal: Command = {
  summary: 'send an event to a run that waits for it',
  usage: 'ID NAME [--data JSON] [--event-id ID] [--replay N] [--reason TEXT] [--if-version N]',
  help: `Sends an event to a run, such as an approval. A run keeps one event for each name: the first. It may arrive before
the run waits for it. Needs the scope transactions:signal.

${PROCESS_HELP}
  --data JSON         the data of the event (default: null)
  --event-id ID       a second event with this id is a repetition, and not an error
  --replay N          the ReplayID of the run (default: the latest run)
${ACT_HELP}

Examples:
  integration-host transactions signal 66 approved --data '{"approved": true}' --reason 'agreed with Ada'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      ...processOption,
      ...actOptions,
      replay: { type: 'string' },
      'event-id': { type: 'string' },
      data: { type: 'string' },
    })
    const { id, name } = eventOf(positionals)
    const query = replayQuery(values.replay)
    const { body, options } = actOf(values)
    const { 'event-id': EventID } = values
    const Data = values.data === undefined ? undefined : jsonOf(values.data)
    const service = openCoordinator(values.url, terminal)
    const at = `${await pathOf(service, values.process)}/${encodeURIComponent(id)}`
    const path = `${at}/events/${encodeURIComponent(name)}${query}`
    const sent = await service.post(
      path,
      { ...body, EventID, Data },
      SignalResponse.loose(),
      options,
    )
    const { KeyID = '', Person = null } = sent.Item.Sender ?? {}
    const text = `Run ${sent.ReplayID} of ${id} has the event ${name} from ${Person ?? keyName(KeyID)}, received at ${sent.Item.FinishedAt}.`
    await print(terminal, values.json ? JSON.stringify(sent) : plain(text))
    return exitCodes.ok
  },
}

export const link: Command = {
  summary: 'create the address at which a person decides about an event',
  usage: 'ID NAME --for PERSON [--expires WHEN] [--replay N] [--reason TEXT] [--if-version N]',
  help: `Creates the address of the page on which a person decides about an event of a run, and prints it. Who has the address
decides as this person, once. It is void when the run is over or replayed. Needs the scope transactions:signal.

${PROCESS_HELP}
  --for PERSON        who decides: a name or an e-mail address
  --expires WHEN      until when the address can be used, like 12h, or a time (default: 7d; at most the event's timeout)
  --replay N          the ReplayID of the run (default: the latest run)
${ACT_HELP}

Examples:
  integration-host transactions link 66 approved --for ada@example.com
  integration-host transactions link 66 approved --for ada@example.com --expires 12h`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      ...processOption,
      ...actOptions,
      replay: { type: 'string' },
      for: { type: 'string' },
      expires: { type: 'string' },
    })
    const { id, name } = eventOf(positionals)
    if (values.for === undefined) throw new UsageError('--for is needed')
    const For = validOption('--for', DecidingPerson, values.for)
    const query = replayQuery(values.replay)
    const { body, options } = actOf(values)
    const now = terminal.wallClock()
    const until = values.expires && timeOf('--expires', values.expires, now, 'future')
    const ExpiresInSeconds = until && Math.ceil((Date.parse(until) - now) / 1_000)
    if (ExpiresInSeconds && ExpiresInSeconds < 1)
      throw new UsageError('--expires must be in the future')
    const service = openCoordinator(values.url, terminal)
    const at = `${await pathOf(service, values.process)}/${encodeURIComponent(id)}`
    const path = `${at}/events/${encodeURIComponent(name)}/links${query}`
    const request = { ...body, For, ...(until && { ExpiresInSeconds }) }
    const created = await service.post(path, request, DecisionLink, options)
    await print(terminal, values.json ? JSON.stringify(created) : plain(created.Url))
    return exitCodes.ok
  },
}

/** Returns the arguments of a command on an event. @throws {UsageError} one is missing or invalid, or there are more. */
function eventOf([given, name, ...rest]: readonly string[]) {
  const id = oneId([given, ...rest].filter((text) => text !== undefined))
  if (name === undefined) throw new UsageError('The name of the event is needed')
  return { id, name }
}

export const replay: Command = {
  summary: 'run a transaction again, with the same or other initial data',
  usage: 'ID [--from-step STEP] [--data JSON] [--replay N] [--reason TEXT] [--if-version N]',
  help: `Runs a transaction again with a new ReplayID and new idempotency keys. Rejected while a run is active.

${PROCESS_HELP}
  --from-step STEP    start at this step, with the results of the earlier steps from the latest run
  --data JSON         the initial data of the new run (default: that of the latest run)
  --replay N          only if this is still the latest run
${ACT_HELP}

Examples:
  integration-host transactions replay 66
  integration-host transactions replay 66 --from-step csv
  integration-host transactions replay 66 --data '{"Amount": 12.5}' --reason 'the amount was wrong'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      ...processOption,
      ...actOptions,
      'from-step': { type: 'string' },
      data: { type: 'string' },
      replay: { type: 'string' },
    })
    const id = oneId(positionals)
    const query = replayQuery(values.replay)
    const { body, options } = actOf(values)
    const InitialData = values.data === undefined ? undefined : jsonOf(values.data)
    const service = openCoordinator(values.url, terminal)
    const at = `${await pathOf(service, values.process)}/${encodeURIComponent(id)}`
    const request = { ...body, fromStep: values['from-step'], InitialData }
    const header = await service.post(`${at}/replays${query}`, request, Header, options)
    const text = `${header.TransactionID} is queued as run ${header.ReplayID}.`
    await printOutcome(terminal, header, values.json, text)
    return exitCodes.ok
  },
}
