import { similarName } from '@integration-host/shared/similar-name'
import installation from '../../../package.json' with { type: 'json' }
import type { Command } from './command.ts'
import { listActions } from './commands/actions.ts'
import { listEntries, showEntries } from './commands/entries.ts'
import { adopt } from './commands/adopt.ts'
import { auditList, auditVerify } from './commands/audit.ts'
import {
  deleteDeadLetters,
  listDeadLetters,
  requeueDeadLetter,
  showDeadLetter,
} from './commands/dead-letters.ts'
import { doctor } from './commands/doctor.ts'
import { checkBooks } from './commands/books.ts'
import { changes } from './commands/changes.ts'
import { listPausedCompanies, pauseCompany, resumeCompany } from './commands/companies.ts'
import { startErasure } from './commands/erasures.ts'
import { connect, labelCredential, list, refresh, remove, show } from './commands/credentials.ts'
import { exportCredentials } from './commands/export.ts'
import { importCredentials } from './commands/import.ts'
import { listKeys, makeKey, revokeKey } from './commands/keys.ts'
import {
  continueOperation,
  listOperations,
  showOperation,
  startOperation,
  stopOperation,
} from './commands/operations.ts'
import { makePassword, makeSignInLink, manageSessions } from './commands/console.ts'
import { listProcesses, pauseProcess, resumeProcess } from './commands/processes.ts'
import { rotateKeys } from './commands/rotate-keys.ts'
import { listSchedules, pauseSchedule, resumeSchedule, runSchedule } from './commands/schedules.ts'
import {
  cancel,
  link,
  replay,
  resume,
  retry,
  settle,
  signal,
  undo,
} from './commands/transactions/change-run.ts'
import { exportTransactions } from './commands/transactions/export.ts'
import { listTransactions } from './commands/transactions/list.ts'
import { queueTransactions } from './commands/transactions/queue.ts'
import { listRuns } from './commands/transactions/runs.ts'
import { showTransaction } from './commands/transactions/show.ts'
import { usage } from './commands/usage.ts'
import { verifyProvider } from './commands/verify-provider.ts'
import { CommandFailed, exitCodes, UsageError } from './exit-code.ts'
import { plain, print, notify, type Terminal } from './terminal.ts'

interface Group {
  readonly title: string
  readonly commands: ReadonlyMap<string, Command>
  readonly examples: readonly string[]
}

/** The groups of commands, in the order in which the help lists them. */
const table: Readonly<
  Record<string, Omit<Group, 'commands'> & { readonly commands: Readonly<Record<string, Command>> }>
> = {
  credentials: {
    title: 'Credentials: the grants of companies',
    commands: {
      list,
      show,
      label: labelCredential,
      connect,
      refresh,
      remove,
      'rotate-keys': rotateKeys,
      import: importCredentials,
      export: exportCredentials,
      adopt,
    },
    examples: ['credentials list', 'credentials show ACC-9341453908059889'],
  },
  transactions: {
    title: 'Transactions of processes',
    commands: {
      list: listTransactions,
      show: showTransaction,
      runs: listRuns,
      queue: queueTransactions,
      replay,
      resume,
      undo,
      cancel,
      retry,
      settle,
      signal,
      link,
      export: exportTransactions,
    },
    examples: ['transactions list --status failed --since 2h', 'transactions show 66'],
  },
  operations: {
    title: 'Bulk operations: one action on many runs',
    commands: {
      start: startOperation,
      show: showOperation,
      list: listOperations,
      stop: stopOperation,
      continue: continueOperation,
    },
    examples: [
      "operations start --action resume --process OrderProcess --status failed --reason 'the API is back' --dry-run",
    ],
  },
  erasures: {
    title: 'Erasing the data of runs',
    commands: { start: startErasure },
    examples: ["erasures start --realm 9341453908059889 --reason 'request of the company'"],
  },
  'dead-letters': {
    title: 'Messages that could not be processed',
    commands: {
      list: listDeadLetters,
      show: showDeadLetter,
      requeue: requeueDeadLetter,
      delete: deleteDeadLetters,
    },
    examples: ['dead-letters list', "dead-letters requeue 5 --reason 'the step is deployed'"],
  },
  processes: {
    title: 'Processes that are loaded',
    commands: { list: listProcesses, pause: pauseProcess, resume: resumeProcess },
    examples: ['processes list', "processes pause OrderProcess --reason 'migration'"],
  },
  companies: {
    title: 'Companies: the pause of all runs of one company',
    commands: { paused: listPausedCompanies, pause: pauseCompany, resume: resumeCompany },
    examples: ["companies pause 9341453908059889 --reason 'month end'", 'companies paused'],
  },
  schedules: {
    title: 'Schedules: when runs begin without a request',
    commands: {
      list: listSchedules,
      pause: pauseSchedule,
      resume: resumeSchedule,
      run: runSchedule,
    },
    examples: ['schedules list', "schedules run Reports nightly --reason 'the night was missed'"],
  },
  books: {
    title: 'The books of a company',
    commands: { check: checkBooks },
    examples: ['books check --realm 9341453908059889 --month 2026-10'],
  },
  console: {
    title: 'The web console: how persons sign in',
    commands: { 'sign-in': makeSignInLink, password: makePassword, sessions: manageSessions },
    examples: ['console sign-in', 'console password ada --role operator'],
  },
  entries: {
    title: 'The book of entries: what runs have written to the books of companies',
    commands: { list: listEntries, show: showEntries },
    examples: ['entries list --transaction 66', 'entries show Invoice 129'],
  },
  actions: {
    title: 'The action log: who changed which run or process, and why',
    commands: { list: listActions },
    examples: ['actions list --id 66'],
  },
  audit: {
    title: 'The audit log: who did what to which credential',
    commands: { list: auditList, verify: auditVerify },
    examples: ['audit list --name ACC-9341453908059889', 'audit verify'],
  },
  keys: {
    title: 'Service keys of callers',
    commands: { new: makeKey, list: listKeys, revoke: revokeKey },
    examples: [
      "keys new --id erp --scope gateway:read --realm '93414*' --expires 90d",
      'keys revoke --id erp',
    ],
  },
}

export const groups: ReadonlyMap<string, Group> = new Map(
  Object.entries(table).map(([name, { commands, ...group }]) => [
    name,
    { ...group, commands: new Map(Object.entries(commands)) },
  ]),
)

/** The commands that belong to no group. */
export const single: ReadonlyMap<string, Command> = new Map([
  ['changes', changes],
  ['usage', usage],
  ['doctor', doctor],
  ['verify-provider', verifyProvider],
])

const PROGRAM = 'integration-host'

/** The help that all commands have in common. */
export const COMMON_HELP = `Options of all commands on an installation; keys, doctor and verify-provider have no --url:
  --url URL    the address of the service: of token-service (TOKEN_SERVICE_URL, default http://127.0.0.1:7217); for
               transactions, operations, erasures, dead-letters, processes, companies, schedules, changes, books,
               entries and actions of the coordinator (COORDINATOR_URL, default http://127.0.0.1:7219); for usage of
               the gateway (GATEWAY_URL, default http://127.0.0.1:7218); for console sign-in of the console
               (CONSOLE_URL, default http://127.0.0.1:7221)
  --json       print only JSON on standard output
  -h, --help   print this text
  --version    without a command: print the version of the installation

The service key is read from SERVICE_API_KEY, from the file SERVICE_API_KEY_FILE, or from the file of the embedded host
(data/secrets/service_api_key). A running embedded host also stores its addresses in its folder (DATA_DIR), and they are
used if no address and no key is set. In the compose stack the container cli has the operators' key. This command prints the
key for applications:
  docker compose run --rm -T --entrypoint cat cli /secrets/application_key

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the credential, key, transaction or other object does not exist, 4 the
credential is faulted, 5 the service cannot be reached or rejects the key, 6 audit entries after the expected one were
trimmed.`

/** The help of each group has its own examples. */
const FIRST_EXAMPLES = [
  'transactions list --status failed --since 2h',
  'transactions show 66',
  'credentials list',
  'doctor',
]
const SHORT_HELP = `Addresses (--url), keys, --json and exit codes: ${PROGRAM} --help`

/**
 * Runs the command that the arguments name. Prints expected failures and resolves with the exit code.
 *
 * @param more further commands of the calling program. The help lists them first.
 */
export async function runCommandLine(
  args: readonly string[],
  terminal: Terminal,
  more: ReadonlyMap<string, Command> = new Map(),
): Promise<number> {
  const path: string[] = []
  const alones = new Map([...more, ...single])
  try {
    // The command is named by the words before the first option.
    const firstOption = args.findIndex((arg) => arg.startsWith('-'))
    const [first, second] = firstOption === -1 ? args : args.slice(0, firstOption)
    const group = groups.get(first ?? '')
    const alone = alones.get(first ?? '')
    if (first !== undefined && (group ?? alone) !== undefined) path.push(first)
    const command = alone ?? group?.commands.get(second ?? '')
    if (second !== undefined && alone === undefined && command !== undefined) path.push(second)
    if (path.length === 0 && args.includes('--version')) {
      await print(terminal, installation.version)
      return exitCodes.ok
    }
    if (args.includes('--help') || args.includes('-h')) {
      await print(terminal, helpOf(path, group, command, more))
      return exitCodes.ok
    }
    if (alone !== undefined) return await alone.run(args.slice(1), terminal)
    if (group === undefined)
      throw new UsageError(
        oneOf('command', first, [...more.keys(), ...groups.keys(), ...single.keys()]),
      )
    if (command === undefined)
      throw new UsageError(oneOf(`${path[0]} command`, second, [...group.commands.keys()]))
    return await command.run(args.slice(2), terminal)
  } catch (error) {
    if (!(error instanceof CommandFailed)) throw error
    notify(terminal, error.message)
    if (error instanceof UsageError) {
      notify(terminal, `See: ${[PROGRAM, ...path, '--help'].join(' ')}`)
    }
    return error.exitCode
  }
}

function oneOf(what: string, given: string | undefined, known: readonly string[]): string {
  const all = `there are: ${known.join(', ')}`
  if (given === undefined) return `A ${what} is needed; ${all}`
  const meant = similarName(given, known)
  const hint = meant === undefined ? '' : ` Did you mean '${meant}'?`
  return `There is no ${what} '${plain(given)}'; ${all}.${hint}`
}

function helpOf(
  path: readonly string[],
  group: Group | undefined,
  command: Command | undefined,
  more: ReadonlyMap<string, Command>,
): string {
  const name = [PROGRAM, ...path].join(' ')
  if (command !== undefined) {
    const help = `Usage: ${`${name} ${command.usage}`.trim()}\n\n${command.help}`
    // A line refers to the common options, which are longer than the help of most commands. They select an installation. The help of the commands of the calling program omits these options,
    // because these commands do not act on an installation.
    return more.has(path[0] ?? '') ? help : `${help}\n\n${SHORT_HELP}`
  }
  const entries =
    group === undefined
      ? [
          ...[...more].map(([word, { summary }]) => [word, summary] as const),
          ...[...groups].flatMap(([groupName, { commands }]) =>
            [...commands].map(([word, { summary }]) => [`${groupName} ${word}`, summary] as const),
          ),
          ...[...single].map(([word, { summary }]) => [word, summary] as const),
        ]
      : [...group.commands].map(([word, { summary }]) => [word, summary] as const)
  const width = Math.max(...entries.map(([word]) => word.length))
  return [
    `Usage: ${name} <command> [options]`,
    '',
    ...(group === undefined ? [] : [`${group.title}:`]),
    ...entries.map(([word, summary]) => `  ${word.padEnd(width)}   ${summary}`),
    '',
    'Examples:',
    ...(group?.examples ?? FIRST_EXAMPLES).map((example) => `  ${PROGRAM} ${example}`),
    `  ${name} ${entries[0]?.[0]} --help`,
    '',
    group === undefined ? COMMON_HELP : SHORT_HELP,
  ].join('\n')
}
