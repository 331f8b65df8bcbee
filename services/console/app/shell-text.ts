/** Commands that a person copies into a shell. */
import type { CommandLine } from '../src/contracts/session.ts'

/**
 * How the command line is run in a checkout. It equals the constant of the same name in packages/shared, which the program
 * of a browser cannot import.
 */
export const COMMAND_LINE = 'npx --no -- integration-host'

/** Quotes an argument for a POSIX shell. A plain word needs no quotes. */
export const quoted = (text: string): string =>
  /^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`

const PROGRAMS: Readonly<Record<CommandLine, string>> = {
  npx: COMMAND_LINE,
  compose: 'docker compose run --rm cli',
}

/** Returns the command that shows a run. */
export const showCommand = (by: CommandLine, process: string, id: string, run: number): string =>
  // Without `--`, an id that begins with a hyphen would be read as an option.
  `${PROGRAMS[by]} transactions show --process ${quoted(process)} --replay ${run} -- ${quoted(id)}`

/** The process whose initial data is known: the number of an order. */
export const DEMO_PROCESS = 'OrderProcess'

/** Returns a command that queues a first transaction. */
export const queueCommand = (by: CommandLine, process: string): string =>
  `${PROGRAMS[by]} transactions queue 1 --process ${quoted(process)} --data ${process === DEMO_PROCESS ? '1' : "'{}'"}`

/** Returns the command that checks the backends. In a compose stack, only the container `doctor` reaches them. */
export const doctorCommand = (by: CommandLine): string =>
  by === 'compose' ? 'docker compose run --rm doctor' : `${PROGRAMS[by]} doctor`

/**
 * Returns a curl command that requests a run. The command reads the key from the environment and passes it through
 * standard input, because other users of the machine can read the arguments of a program.
 */
export const curlCommand = (process: string, id: string, run: number): string =>
  `printf 'Authorization: Bearer %s\\n' "$SERVICE_API_KEY" | ` +
  `curl -H @- "$COORDINATOR_URL"${quoted(
    `/processes/${encodeURIComponent(process)}/transactions/${encodeURIComponent(id)}?replay=${run}`,
  )}`
