import { parseArgs, type ParseArgsOptionsConfig } from 'node:util'

const flag = { type: 'boolean' } as const

/**
 * Reads the arguments of the program. Returns a function that returns whether an option was given. After `--help` the
 * process prints the help text and exits. After an invalid argument it prints one line and the help text, and exits
 * with code 2.
 */
export function readOptions<Name extends string>(
  help: string,
  names: readonly Name[],
): (name: Name) => boolean {
  const options: ParseArgsOptionsConfig = {
    ...Object.fromEntries(names.map((name) => [name, flag])),
    help: { ...flag, short: 'h' },
  }
  try {
    const { values } = parseArgs({ options })
    if (values['help'] !== true) return (name) => values[name] === true
    process.stdout.write(help)
    process.exit()
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    if (!code.startsWith('ERR_PARSE_ARGS_')) throw error
    process.stderr.write(`${message.split('. ')[0] ?? message}.\n\n${help}`)
    process.exit(2)
  }
}
