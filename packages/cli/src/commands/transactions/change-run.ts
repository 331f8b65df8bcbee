/** The commands that change a run: resume, cancel and replay. */
import { type Command, parse } from '../../command.ts'
import { exitCodes } from '../../exit-code.ts'
import { openCoordinator } from '../../service-api.ts'
import {
  ACT_HELP,
  actOf,
  actOptions,
  Header,
  oneId,
  pathOf,
  printOutcome,
  PROCESS_HELP,
  processOption,
  replayQuery,
} from './arguments.ts'

/** Creates a command that changes one run and prints the outcome. */
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
  integration-host transactions list --status Failed --all --json | jq -r .TransactionID |
    xargs -d '\\n' -n 1 integration-host transactions resume --`,
  },
  'resume',
  ({ TransactionID: id, ReplayID: replay, StepName }) =>
    `${id} continues at step ${StepName}, in run ${replay}.`,
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

export const replay: Command = {
  summary: 'run a transaction again with the same initial data',
  usage: 'ID [--from-step STEP] [--replay N] [--reason TEXT] [--if-version N]',
  help: `Runs a transaction again with the same initial data, a new ReplayID and new idempotency keys. Rejected while a run
is active.

${PROCESS_HELP}
  --from-step STEP    start at this step, with the results of the earlier steps from the latest run
  --replay N          only if this is still the latest run
${ACT_HELP}

Examples:
  integration-host transactions replay 66
  integration-host transactions replay 66 --from-step csv`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {
      ...processOption,
      ...actOptions,
      'from-step': { type: 'string' },
      replay: { type: 'string' },
    })
    const id = oneId(positionals)
    const query = replayQuery(values.replay)
    const { body, options } = actOf(values)
    const service = openCoordinator(values.url, terminal)
    const at = `${await pathOf(service, values.process)}/${encodeURIComponent(id)}`
    const request = { ...body, fromStep: values['from-step'] }
    const header = await service.post(`${at}/replays${query}`, request, Header, options)
    const text = `${header.TransactionID} is queued as run ${header.ReplayID}.`
    await printOutcome(terminal, header, values.json, text)
    return exitCodes.ok
  },
}
