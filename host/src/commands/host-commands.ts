/** The commands that run the embedded host for a project, and the command that makes a project. */
import { existsSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { type Command, expectNone, parse } from '@integration-host/cli/command'
import { UsageError } from '@integration-host/cli/exit-code'
import { plain } from '@integration-host/cli/terminal'
import { init, rejectUrlAndJson } from './init.ts'

const FOLDER_HELP = `  FOLDER         the folder of the project (default: this folder). Its file .env is read; a variable that is set takes precedence
  --free-ports   unused ports instead of 7216 to 7222

  PROCESSES      folders and packages with process files, relative to FOLDER (default ./processes)
  DATA_DIR       where all data is stored, relative to FOLDER (default ./data)
  LOG_LEVEL      the log level of the services`

/** Returns the arguments of `dev` or `start`. @throws {UsageError} another option or a second folder is given. */
function folderArguments(args: readonly string[]): {
  readonly folder: string
  readonly ports: 'free' | 'standard'
} {
  const { values, positionals } = parse(args, { 'free-ports': { type: 'boolean' } })
  rejectUrlAndJson(values)
  const [folder = '.', ...rest] = positionals
  expectNone(rest)
  return { folder, ports: values['free-ports'] === true ? 'free' : 'standard' }
}

/**
 * Changes the working directory to the project folder, to which the paths in the settings are relative. Then loads the
 * file `.env` of this folder into the environment of this OS process. The default of `PROCESSES` is the folder
 * `processes`.
 *
 * @throws {UsageError} the folder is missing, or has no processes.
 */
function enterProject(folder: string): void {
  const path = resolve(folder)
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() !== true)
    throw new UsageError(`${plain(path)} is not a folder`)
  process.chdir(path)
  if (existsSync('.env')) process.loadEnvFile('.env')
  if (process.env['PROCESSES']) return
  if (!existsSync('processes'))
    throw new UsageError(
      `${plain(path)} has no folder processes: set PROCESSES, or make a project with integration-host init FOLDER`,
    )
  process.env['PROCESSES'] = './processes'
}

const dev: Command = {
  summary: 'run your processes with a sandbox provider, and show each step',
  usage: '[FOLDER] [--free-ports]',
  help: `Runs all services in this OS process, on the loopback interface, with a sandbox in place of your provider. A company of the
sandbox is connected already. Prints each step of a run when it ends; Ctrl-C ends it. A changed process file is in force for the next
step. If it does not load, its line is named, and the last version stays in force.

${FOLDER_HELP} (default: warnings, and the processes that were loaded)

The settings of a provider (DISCOVERY_URL, ACCOUNTING_URL, CLIENT_ID, REDIRECT) are ignored.

Examples:
  integration-host dev
  integration-host dev my-processes --free-ports`,
  async run(args, terminal) {
    const { folder, ports } = folderArguments(args)
    enterProject(folder)
    const { runDev } = await import('../run-dev.ts')
    await runDev(ports, terminal)
    return 0
  },
}

const start: Command = {
  summary: 'run your processes with your provider, on one machine',
  usage: '[FOLDER] [--free-ports]',
  help: `Runs all services in this OS process, on the loopback interface, with the data in files that survive a power failure. It needs
neither Redis nor RabbitMQ nor Postgres, and runs until it receives SIGTERM or Ctrl-C. The first start makes the keys.

${FOLDER_HELP} (default info)

  DISCOVERY_URL, CLIENT_ID, CLIENT_SECRET (or CLIENT_SECRET_FILE)   the provider; required
  REDIRECT, ACCOUNTING_URL, AUTHORIZE and the other settings of docs/settings.md

Examples:
  integration-host start
  DATA_DIR=/var/lib/integration-host integration-host start /srv/my-processes`,
  async run(args, { signal: stop, stdout, stderr }) {
    const { folder, ports } = folderArguments(args)
    enterProject(folder)
    const [{ runHost }, { terminalLog }, { addresses, signInLines }] = await Promise.all([
      import('../run-host.ts'),
      import('@integration-host/shared/observability/logger'),
      import('../banner.ts'),
    ])
    await runHost({
      command: 'integration-host start',
      ports,
      provider: 'real',
      logTo: stdout.isTTY === true ? terminalLog(stdout, { omitRequests: true }) : stdout,
      logLevel: 'info',
      stop,
      withConsole: true,
      onStarted: (host) =>
        void stderr.write(`${addresses(host)}\n${signInLines(host, stderr.isTTY === true)}`),
    })
    return 0
  },
}

/** The commands that extend the command line of an installation. */
export const hostCommands: ReadonlyMap<string, Command> = new Map([
  ['init', init],
  ['dev', dev],
  ['start', start],
])
