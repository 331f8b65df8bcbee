/** The commands on processes: list, pause and resume. */
import { keyName } from '@integration-host/shared/access/key-name'
import { z } from 'zod'
import { type Command, expectNone, parse } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { openCoordinator } from '../service-api.ts'
import { createTable, plain, print, widthOf } from '../terminal.ts'
import { REASON_HELP, reasonOf, reasonOption } from './transactions/arguments.ts'

// `--json` prints all members of a response, so the schema keeps unknown members.
const Process = z.looseObject({
  Process: z.string(),
  Steps: z.array(z.string()),
  Paused: z.boolean(),
  PausedAt: z.string().nullable().optional(),
  PausedBy: z.string().nullable().optional(),
  Reason: z.string().nullable().optional(),
  Consuming: z.boolean(),
})
const Processes = z.object({ items: z.array(Process) })

export const listProcesses: Command = {
  summary: 'list the processes, and which of them are paused, by whom and why',
  usage: '',
  help: `Lists the processes that the coordinator has loaded. IDLE means that this replica runs no step now although the process is
not paused, for example because the process needs the internet and there is no connection. With --json each line is one process.

Examples:
  integration-host processes list
  integration-host processes list --json | jq -r 'select(.Paused) | .Process'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {})
    expectNone(positionals)
    const { items } = await openCoordinator(values.url, terminal).get('/processes', Processes)
    const table = createTable(COLUMNS, widthOf(terminal))
    await print(
      terminal,
      ...(values.json ? items.map((item) => JSON.stringify(item)) : table(items.map(rowOf))),
    )
    return exitCodes.ok
  },
}

const COLUMNS = ['PROCESS', 'STATE', 'STEPS', 'PAUSED AT', 'BY', 'REASON']

const rowOf = (process: z.output<typeof Process>): string[] => [
  process.Process,
  process.Paused ? 'PAUSED' : process.Consuming ? 'RUNNING' : 'IDLE',
  process.Steps.join(', '),
  process.PausedAt ?? '',
  keyName(process.PausedBy ?? ''),
  process.Reason ?? '',
]

/** Creates a command that changes one process and prints the outcome. */
const change = (
  { summary, help }: Pick<Command, 'summary' | 'help'>,
  path: 'pause' | 'resume',
  done: string,
): Command => ({
  summary,
  usage: 'NAME [--reason TEXT]',
  help,
  async run(args, terminal) {
    const { values, positionals } = parse(args, reasonOption)
    const [name, ...rest] = positionals
    if (name === undefined) throw new UsageError('The name of a process is needed')
    expectNone(rest)
    const body = { Reason: reasonOf(values.reason) }
    const at = `/processes/${encodeURIComponent(name)}/${path}`
    const process = await openCoordinator(values.url, terminal).post(at, body, Process)
    await print(
      terminal,
      values.json ? JSON.stringify(process) : `${plain(process.Process)} ${done}`,
    )
    return exitCodes.ok
  },
})

export const pauseProcess = change(
  {
    summary: 'pause a process: it accepts transactions, but runs no step',
    help: `Pauses a process on all replicas. It accepts transactions, but starts no step; a step in flight may finish. Other
replicas pause the process at their next remote pull (REMOTE_PULL_SECONDS).

${REASON_HELP}

Examples:
  integration-host processes pause OrderProcess --reason 'the warehouse is closed'`,
  },
  'pause',
  'is paused.',
)

export const resumeProcess = change(
  {
    summary: 'run the steps of a paused process again',
    help: `Ends the pause of a process.

${REASON_HELP}

Examples:
  integration-host processes resume OrderProcess --reason 'the warehouse is open'`,
  },
  'resume',
  'runs again.',
)
