import { parseArgs, type ParseArgsOptionsConfig } from 'node:util'
import { CredentialName } from '@integration-host/shared/contracts/realm'
import type { z } from 'zod'
import { UsageError } from './exit-code.ts'
import type { Terminal } from './terminal.ts'

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

const commonOptions = { url: { type: 'string' }, json: { type: 'boolean' } } as const

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
 * Returns the only positional argument, the name of a credential.
 *
 * @throws {UsageError} the name is missing or invalid, or there are further arguments.
 */
export function oneName(positionals: readonly string[]): string {
  const [name, ...rest] = credentialNames(positionals)
  if (name === undefined) throw new UsageError('The name of a credential is needed: ACC-<realm>')
  expectNone(rest)
  return name
}

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
