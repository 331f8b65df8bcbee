import { pino } from 'pino'
import type { logLevels } from '../process/config.ts'
import { IntegrationError } from '../errors.ts'
import { terminalLog } from './terminal-log.ts'

export type Logger = pino.Logger
export type LogLevel = (typeof logLevels)[number]

/**
 * Creates a logger that writes JSON lines to standard output, or readable lines if standard output is a terminal. Each
 * log line has a constant message and its data in separate fields. Lines of one kind can then be searched and counted.
 *
 * Errors are logged in the field `err`. The serializer of this field copies only members that are known to be harmless,
 * because drivers put passwords, bearer tokens and whole bodies on their error objects.
 */
export function createLogger(
  service: string,
  level: LogLevel,
  destination?: pino.DestinationStream,
): Logger {
  const options: pino.LoggerOptions = {
    level,
    base: { service },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
    serializers: { err: describeError },
  }
  const to = destination ?? (process.stdout.isTTY ? terminalLog(process.stdout) : undefined)
  return to === undefined ? pino(options) : pino(options, to)
}

/**
 * Returns the parts of an error that are safe to log. Everything that could be a secret is removed from the message.
 */
export function describeError(error: unknown, depth = 0): Record<string, unknown> {
  if (!(error instanceof Error)) return { type: typeof error }
  const { code } = error as { code?: unknown }
  const message = error instanceof IntegrationError ? error.message : scrub(error.message)
  return {
    type: error.name,
    message,
    ...(typeof code === 'string' && { code }),
    ...(error instanceof IntegrationError ? {} : { stack: frames(error) }),
    ...(error.cause !== undefined && depth < 3 && { cause: describeError(error.cause, depth + 1) }),
  }
}

/**
 * Removes possible secrets from a text of another library or process: everything that is long enough to be a token, and
 * the user information of URLs.
 */
export function scrub(text: string): string {
  return text
    .slice(0, 500)
    .replace(/\/\/[^\s/@]*@/g, '//[redacted]@')
    .replace(/[A-Za-z0-9_.~+=-]{24,}/g, '[redacted]')
    .replace(/\b(Bearer|Basic)\s+\S+/gi, '$1 [redacted]')
}

// Returns only the stack frames. The first line of a stack is left out, because it repeats the message, which may
// contain a secret.
function frames(error: Error): string | undefined {
  return error.stack
    ?.split('\n')
    .filter((line) => /^\s+at /.test(line))
    .slice(0, 12)
    .join('\n')
}
