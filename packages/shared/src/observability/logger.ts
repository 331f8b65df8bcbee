import { EventEmitter } from 'node:events'
import { pino } from 'pino'
import type { logLevels } from '../process/config.ts'
import { IntegrationError } from '../errors.ts'
import { styleText } from 'node:util'

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
  const to = destination ?? (process.stdout.isTTY ? terminalLog(process.stdout) : linesOut())
  return pino(options, to)
}

let standardOutput: pino.DestinationStream | undefined
/**
 * Returns the stream to standard output, which all loggers of the OS process share. pino writes in the background: with
 * a stream for each logger, the last line of one logger could be written before earlier lines of another.
 */
const linesOut = (): pino.DestinationStream => (standardOutput ??= pino.destination())

/** How long lines may take to be written. A reader of standard output that has stopped must not keep the process. */
const WRITTEN_MS = 1_000

/**
 * Calls `then` when the lines of all loggers are written, and after a second at the latest. The logger must have logged a
 * line in this turn of the event loop.
 */
export function whenWritten(logger: Logger, then: () => void): void {
  const stream = (logger as unknown as Record<symbol, unknown>)[pino.symbols.streamSym]
  if (stream !== standardOutput || !(stream instanceof EventEmitter)) return then()
  const timer = setTimeout(then, WRITTEN_MS)
  stream.once('drain', () => {
    clearTimeout(timer)
    then()
  })
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

/** A stream for log lines. pino writes one JSON document to the stream with each call. */
export interface LogStream {
  write(line: string): void
}

interface TerminalLogOptions {
  /** Omits the log lines of HTTP requests. If several services share a terminal, these lines would hide all others. */
  readonly omitRequests?: boolean
}

/**
 * Returns a stream that converts JSON log lines to human-readable lines: time, service, message, then the data. Lines
 * above level `info` are marked and coloured, unless the terminal has no colours or `NO_COLOR` is set.
 */
export function terminalLog(
  out: NodeJS.WritableStream,
  { omitRequests = false }: TerminalLogOptions = {},
): LogStream {
  return {
    write(line) {
      const { time, level, service, msg, err, ...data } = JSON.parse(line) as Record<
        string,
        unknown
      >
      if (omitRequests && msg === 'request completed') return
      const details = Object.entries({ ...data, ...errorDetails(err) }).map(
        ([key, value]) => `${key}=${text(value)}`,
      )
      const isMarked = !QUIET_LEVELS.has(text(level))
      const row =
        `${localTime(time)} ${isMarked ? '!' : ' '} ${text(service).padEnd(18)} ${text(msg)}  ${details.join(' ')}`.trimEnd()
      out.write(`${isMarked ? styleText('yellow', row, { stream: out }) : row}\n`)
    },
  }
}

const QUIET_LEVELS: ReadonlySet<string> = new Set(['trace', 'debug', 'info'])

const text = (value: unknown): string =>
  typeof value === 'string' ? value : (JSON.stringify(value) ?? '')

const localTime = (time: unknown): string =>
  new Date(text(time)).toLocaleTimeString('en-GB', { hourCycle: 'h23' })

/** Returns the parts of a logged error that are shown on a terminal. Only the JSON log contains the stack. */
function errorDetails(err: unknown): Record<string, unknown> {
  if (typeof err !== 'object' || err === null) return {}
  const { message, code } = err as { message?: unknown; code?: unknown }
  return { error: message, ...(code !== undefined && { code }) }
}
