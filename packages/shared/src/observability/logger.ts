import { createRequire } from 'node:module'
import { pino } from 'pino'
import type { PinoPretty } from 'pino-pretty'
import type { logLevels } from '../process/config.ts'
import { IntegrationError } from '../errors.ts'

export type Logger = pino.Logger
export type LogLevel = (typeof logLevels)[number]

/**
 * JSON lines on standard output, lines for people where that is a terminal: a constant message, the data beside it.
 *
 * Errors go under `err` and pass one serializer that keeps an allow-list: drivers put passwords, bearer
 * tokens and whole bodies on their error objects.
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
  const to = destination ?? (process.stdout.isTTY ? forPeople() : undefined)
  return to === undefined ? pino(options) : pino(options, to)
}

// Loaded here: a service that nobody looks at has no need of it.
function forPeople(): pino.DestinationStream {
  const pretty = createRequire(import.meta.url)('pino-pretty') as typeof PinoPretty
  return pretty({
    colorize: !process.env['NO_COLOR'] && process.env['TERM'] !== 'dumb',
    messageFormat: '{service}: {msg}',
    ignore: 'service',
    translateTime: 'SYS:HH:MM:ss.l',
    singleLine: true,
    sync: true,
  })
}

/** What may be told of an error. The message of a foreign one is scrubbed of all that could be a secret. */
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

/** Takes out of foreign text everything long enough to be a token, and what stands in a URL's authority. */
export function scrub(text: string): string {
  return text
    .slice(0, 500)
    .replace(/\/\/[^\s/@]*@/g, '//[redacted]@')
    .replace(/[A-Za-z0-9_.~+=-]{24,}/g, '[redacted]')
    .replace(/\b(Bearer|Basic)\s+\S+/gi, '$1 [redacted]')
}

// The first line of a stack repeats the message; the frames hold only places in the code.
function frames(error: Error): string | undefined {
  return error.stack
    ?.split('\n')
    .filter((line) => /^\s+at /.test(line))
    .slice(0, 12)
    .join('\n')
}
