/** The arguments and the folder of the commands that run the embedded host for a project: `dev` and `start`. */
import { existsSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { expectNone, parse } from '@integration-host/cli/command'
import { UsageError } from '@integration-host/cli/exit-code'
import { plain } from '@integration-host/cli/terminal'

export const FOLDER_HELP = `  FOLDER         the folder of the project (default: this folder). Its file .env is read; a variable that is set takes precedence
  --free-ports   unused ports instead of 7216 to 7222

  PROCESSES      folders and packages with process files, relative to FOLDER (default ./processes)
  DATA_DIR       where all data is stored, relative to FOLDER (default ./data)
  LOG_LEVEL      the log level of the services`

/** Returns the arguments of `dev` or `start`. @throws {UsageError} another option or a second folder is given. */
export function folderArguments(args: readonly string[]): {
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
 * Rejects `--url` and `--json`, which only commands on an installation have. @throws {UsageError} if one of them is
 * given.
 */
export function rejectUrlAndJson(values: {
  readonly url?: unknown
  readonly json?: unknown
}): void {
  for (const name of ['url', 'json'] as const)
    if (values[name] !== undefined) throw new UsageError(`Unknown option '--${name}'`)
}

/**
 * Changes the working directory to the project folder, to which the paths in the settings are relative. Then loads the
 * file `.env` of this folder into the environment of this OS process. The default of `PROCESSES` is the folder
 * `processes`.
 *
 * @throws {UsageError} the folder is missing, or has no processes.
 */
export function enterProject(folder: string): void {
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
