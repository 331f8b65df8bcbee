import { parseArgs, type ParseArgsOptionsConfig } from 'node:util'
import { CredentialName } from '@integration-host/shared/contracts/realm'
import type { z } from 'zod'
import { exitCodes, UsageError } from './exit-code.ts'
import { print, type Terminal } from './terminal.ts'

export interface Command {
  /** The description in the list of commands, on one line. */
  readonly summary: string
  /** The arguments that the usage line shows after the command's name. */
  readonly usage: string
  /** The help text: description, options and examples of the command. */
  readonly help: string
  /** Runs the command and resolves with the exit code. @throws {CommandFailed} the command failed. */
  run(args: readonly string[], terminal: Terminal): Promise<number>
}

const named = <Name extends string, const Option>(names: readonly Name[], option: Option) =>
  Object.fromEntries(names.map((name) => [name, option])) as Readonly<Record<Name, Option>>

/** The options with these names, each of which has a text as its value. */
export const texts = <Name extends string>(...names: readonly Name[]) =>
  named(names, { type: 'string' })
/** Options of texts, each of which may be repeated. */
export const lists = <Name extends string>(...names: readonly Name[]) =>
  named(names, { type: 'string', multiple: true })
/** Options without a value. */
export const flags = <Name extends string>(...names: readonly Name[]) =>
  named(names, { type: 'boolean' })

/** The options of the commands that prompt before a change. */
export const yesOption = { yes: { type: 'boolean', short: 'y' } } as const

const commonOptions = { ...texts('url'), ...flags('json') }
export type CommonOptions = typeof commonOptions

/** What a command runs with. */
export interface Given<Options extends ParseArgsOptionsConfig, Argument = void> {
  readonly values: ReturnType<typeof parse<Options>>['values']
  readonly argument: Argument
  readonly terminal: Terminal
  /** Prints the result: as JSON on one line with `--json`, and otherwise as lines for people. */
  readonly output: (document: unknown, ...lines: readonly string[]) => Promise<void>
}

export interface Definition<Options extends ParseArgsOptionsConfig, Argument> extends Omit<
  Command,
  'run'
> {
  readonly options?: Options
  /**
   * Returns the argument of the command from the words that are not options. By default there must be none.
   *
   * @throws {UsageError} a word is missing, invalid, or too much.
   */
  readonly argumentOf?: (words: readonly string[]) => Argument
  /** Runs the command. Resolves with the exit code, if it is not 0. */
  readonly run: (given: Given<Options, Argument>) => Promise<number | void>
}

/** Creates a command from its options and the function that runs with their values. */
export const defineCommand = <
  const Options extends ParseArgsOptionsConfig = CommonOptions,
  Argument = void,
>({
  options = {} as Options, // without `options` the type parameter has its default
  argumentOf = expectNone as (words: readonly string[]) => Argument, // the default of `Argument` is void
  run,
  ...described
}: Definition<Options, Argument>): Command => ({
  ...described,
  async run(args, terminal) {
    const { values, positionals } = parse(args, options)
    // The cast is needed because the other options are a type parameter.
    const { json: isJson } = values as { readonly json?: boolean }
    const output = (document: unknown, ...lines: readonly string[]): Promise<void> =>
      print(terminal, ...(isJson ? [JSON.stringify(document)] : lines))
    const argument = argumentOf(positionals)
    return (await run({ values, argument, terminal, output })) ?? exitCodes.ok
  },
})

/**
 * Parses the options of one command, and the options that every command has.
 *
 * @throws {UsageError} an option is unknown or lacks its value.
 */
export function parse<const Options extends ParseArgsOptionsConfig>(
  args: readonly string[],
  options: Options,
) {
  try {
    return parseArgs({
      args: [...args],
      options: { ...commonOptions, ...options },
      allowPositionals: true,
    })
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    if (!code.startsWith('ERR_PARSE_ARGS_')) throw error
    throw new UsageError(message.split('. ')[0] ?? message)
  }
}

/** Checks that no positional argument is left. @throws {UsageError} a positional argument is left. */
export function expectNone(positionals: readonly string[]): void {
  if (positionals[0] !== undefined) throw new UsageError(`Unexpected argument '${positionals[0]}'`)
}

/**
 * Returns the only positional argument.
 *
 * @throws {UsageError} it is missing, with the message `missing`; or there are further arguments.
 */
export function onlyWord([word, ...rest]: readonly string[], missing: string): string {
  if (word === undefined) throw new UsageError(missing)
  expectNone(rest)
  return word
}

/** Returns the only positional argument, the name of a credential. @throws {UsageError} as {@link onlyWord} */
export const oneName = (positionals: readonly string[]): string =>
  onlyWord(credentialNames(positionals), 'The name of a credential is needed: ACC-<realm>')

/** Returns the words if all of them are credential names. @throws {UsageError} a word is not a credential name. */
export function credentialNames(words: readonly string[]): string[] {
  return words.map((word) => validOption(`'${word}'`, CredentialName, word))
}

/** Parses the value of an option as a whole number. @throws {UsageError} the value is not a whole number. */
export function wholeNumber(option: string, text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new UsageError(`${option} must be a whole number`)
  return Number(text)
}

const MAX_SECONDS = 3_600

/**
 * Parses the value of an option, which is in seconds. Returns milliseconds.
 *
 * @throws {UsageError} the text is not a number from 1 to 3600.
 */
export function durationMsOf(
  option: string,
  text: string | undefined,
  defaultSeconds: number,
): number {
  const seconds = wholeNumber(option, text ?? String(defaultSeconds))
  if (seconds < 1 || seconds > MAX_SECONDS)
    throw new UsageError(`${option} must be 1 to ${MAX_SECONDS}`)
  return seconds * 1_000
}

/** Parses the value of an option with a schema. @throws {UsageError} the value does not fit the schema. */
export function validOption<Schema extends z.ZodType>(
  option: string,
  schema: Schema,
  value: unknown,
): z.output<Schema> {
  const parsed = schema.safeParse(value)
  if (!parsed.success) throw invalidOption(option, parsed.error)
  return parsed.data
}

/** Returns the error for an option with an invalid value. The message names the option and the first violated rule. */
export const invalidOption = (option: string, { issues }: z.ZodError): UsageError =>
  new UsageError(`${option} ${issues[0]?.message ?? 'is invalid'}`)

/** Splits `NAME=VALUE` at the first `=`. @throws {UsageError} there is no name or no `=`. */
export function pairOf(option: string, text: string): [name: string, value: string] {
  const equals = text.indexOf('=')
  if (equals < 1) throw new UsageError(`${option} must be NAME=VALUE`)
  return [text.slice(0, equals), text.slice(equals + 1)]
}
