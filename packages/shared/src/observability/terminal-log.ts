import { styleText } from 'node:util'

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
