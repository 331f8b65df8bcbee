/** The commands on processes: list, pause and resume. */
import { keyName } from '@integration-host/shared/access/key-list'
import { z } from 'zod'
import { onlyWord } from '../command.ts'
import { changeCommand, listCommand } from '../service-command.ts'

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

export const listProcesses = listCommand({
  summary: 'list the processes, and which of them are paused, by whom and why',
  help: `Lists the processes that the coordinator has loaded. IDLE means that this replica runs no step now although the process is
not paused, for example because the process needs the internet and there is no connection. With --json each line is one process.

Examples:
  integration-host processes list
  integration-host processes list --json | jq -r 'select(.Paused) | .Process'`,
  path: '/processes',
  response: z.object({ items: z.array(Process) }),
  columns: {
    PROCESS: ({ Process: name }) => name,
    STATE: ({ Paused, Consuming }) => (Paused ? 'PAUSED' : Consuming ? 'RUNNING' : 'IDLE'),
    STEPS: ({ Steps }) => Steps.join(', '),
    'PAUSED AT': ({ PausedAt }) => PausedAt,
    BY: ({ PausedBy }) => keyName(PausedBy ?? ''),
    REASON: ({ Reason }) => Reason,
  },
})

const change = (action: 'pause' | 'resume', done: string) => ({
  usage: 'NAME',
  pathOf: (words: readonly string[]) =>
    `/processes/${encodeURIComponent(onlyWord(words, 'The name of a process is needed'))}/${action}`,
  response: Process,
  done: (process: z.output<typeof Process>) => `${process.Process} ${done}`,
})

export const pauseProcess = changeCommand({
  ...change('pause', 'is paused.'),
  summary: 'pause a process: it accepts transactions, but runs no step',
  help: [
    `Pauses a process on all replicas. It accepts transactions, but starts no step; a step in flight may finish. Other
replicas pause the process at their next remote pull (REMOTE_PULL_SECONDS).`,
    `processes pause OrderProcess --reason 'the warehouse is closed'`,
  ],
})

export const resumeProcess = changeCommand({
  ...change('resume', 'runs again.'),
  summary: 'run the steps of a paused process again',
  help: [
    'Ends the pause of a process.',
    `processes resume OrderProcess --reason 'the warehouse is open'`,
  ],
})
