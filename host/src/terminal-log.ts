import type { Writable } from 'node:stream'

/**
 * Turns the services' JSON log lines into lines for a person: time, service, message, what belongs to it.
 * Request lines stay out of it: on a terminal they drown what matters.
 */
export function terminalLog(out: Writable): { write(line: string): void } {
  return {
    write(line) {
      const { time, level, service, msg, err, ...data } = JSON.parse(line) as Record<
        string,
        unknown
      >
      if (msg === 'request') return
      const details = Object.entries({ ...data, ...errorOf(err) }).map(
        ([key, value]) => `${key}=${text(value)}`,
      )
      const mark = level === 'info' || level === 'debug' ? ' ' : '!'
      out.write(
        `${text(time).slice(11, 19)} ${mark} ${text(service).padEnd(18)} ${text(msg)}  ${details.join(' ')}`.trimEnd() +
          '\n',
      )
    },
  }
}

const text = (value: unknown): string =>
  typeof value === 'string' ? value : (JSON.stringify(value) ?? '')

const errorOf = (err: unknown): Record<string, unknown> => {
  if (typeof err !== 'object' || err === null) return {}
  const { message, code } = err as { message?: unknown; code?: unknown }
  return { error: message, ...(code !== undefined && { code }) }
}
