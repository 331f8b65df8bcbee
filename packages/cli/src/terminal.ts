/** The input and output of commands: results go to standard output, everything else to standard error. */
import { once } from 'node:events'
import { createInterface } from 'node:readline/promises'
import { Writable } from 'node:stream'
import type { Environment } from '@integration-host/shared/process/config'
import { Secret } from '@integration-host/shared/secrets/secret'
import { CommandFailed, exitCodes } from './exit-code.ts'

type Input = NodeJS.ReadableStream & { readonly isTTY?: boolean }
type Output = NodeJS.WritableStream & { readonly isTTY?: boolean }

/** The environment of a command: settings, streams, clock and signals. Tests replace it. */
export interface Terminal {
  readonly env: Environment
  readonly stdin: Input
  readonly stdout: Output
  readonly stderr: Output
  readonly now: () => number
  /** Aborted if the process receives a signal; the reason is a {@link CommandFailed}. */
  readonly signal: AbortSignal
}

/** Writes lines to standard output and waits until a slow reader has drained the stream. */
export async function print({ stdout }: Terminal, ...lines: readonly string[]): Promise<void> {
  if (lines.length === 0) return
  if (!stdout.write(`${lines.join('\n')}\n`)) await once(stdout, 'drain')
}

/** Writes lines to standard error: information for the user that is not part of the result. */
export function notify({ stderr }: Terminal, ...lines: readonly string[]): void {
  stderr.write(`${lines.join('\n')}\n`)
}

/** Returns text on one line without control characters: a response must not be able to control the terminal. */
export const plain = (text: string): string =>
  text.replace(/\s+/g, ' ').replace(/[\p{Cc}\p{Cf}]/gu, '�')

/** Returns a number with its noun, such as `1 credential` or `2 credentials`. */
export const counted = (count: number, noun: string, plural = `${noun}s`): string =>
  `${count} ${count === 1 ? noun : plural}`

/**
 * Returns a function that formats rows as lines with aligned columns. The first call also returns the header line. In
 * later calls each column is at least as wide as in earlier calls.
 */
export function createTable(
  header: readonly string[],
): (rows: readonly (readonly string[])[]) => string[] {
  const widths = header.map(() => 0)
  let isStarted = false
  return (rows) => {
    const all = (isStarted ? rows : [header, ...rows]).map((row) => row.map(plain))
    isStarted = true
    for (const row of all)
      for (const [column, text] of row.entries())
        widths[column] = Math.max(widths[column] ?? 0, text.length)
    return all.map((row) =>
      row
        .map((text, column) => text.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
  }
}

const codes = { green: 32, yellow: 33, red: 31, dim: 2 } as const
export type Colour = keyof typeof codes

/**
 * Returns a function that colours text. Without a terminal or with NO_COLOR set (no-color.org), the function returns
 * the text unchanged.
 */
export function painter({ stdout, env }: Terminal): (colour: Colour, text: string) => string {
  const isColoured = stdout.isTTY === true && !env['NO_COLOR'] && env['TERM'] !== 'dumb'
  return (colour, text) => (isColoured ? `\x1b[${codes[colour]}m${text}\x1b[0m` : text)
}

const REDRAW_MS = 100
const CALM_MS = 10_000

/**
 * Shows the progress of a long operation. On a terminal one line is redrawn; otherwise a new line is printed every ten
 * seconds.
 */
export function createProgress({ stderr, now }: Terminal): {
  update(text: string): void
  /** Clears the progress line. This method must be called before other text is written to standard error. */
  end(): void
} {
  const isDrawn = stderr.isTTY === true
  let lastAt = isDrawn ? -Infinity : now()
  let isShown = false
  return {
    update(text) {
      if (now() - lastAt < (isDrawn ? REDRAW_MS : CALM_MS)) return
      lastAt = now()
      isShown = isDrawn
      stderr.write(isDrawn ? `\r\x1b[K${text}` : `${text}\n`)
    },
    end() {
      if (isShown) stderr.write('\r\x1b[K')
      isShown = false
    },
  }
}

/** Returns whether the user can be prompted. */
export const isInteractive = ({ stdin, stderr }: Terminal): boolean =>
  stdin.isTTY === true && stderr.isTTY === true

/** Prompts for one line of input. The terminal echoes the input. */
export const prompt = (terminal: Terminal, question: string): Promise<string> =>
  promptOn(terminal, terminal.stderr, question)

/** Prompts for one line of input. The terminal does not echo the input. */
export async function promptSecret(terminal: Terminal, question: string): Promise<Secret> {
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() })
  terminal.stderr.write(question)
  try {
    return new Secret(await promptOn(terminal, nowhere, ''))
  } finally {
    terminal.stderr.write('\n')
  }
}

async function promptOn(
  { stdin, signal }: Terminal,
  output: Output,
  question: string,
): Promise<string> {
  // With `terminal: true`, readline itself edits and echoes the line, so that the echo can be suppressed.
  const lines = createInterface({ input: stdin, output, terminal: true, historySize: 0 })
  const given = new AbortController()
  // On Ctrl-C and Ctrl-D readline emits only `close`; without this listener the prompt would never settle.
  for (const event of ['SIGINT', 'close'] as const) lines.once(event, () => given.abort())
  try {
    return await lines.question(question, { signal: AbortSignal.any([signal, given.signal]) })
  } catch {
    signal.throwIfAborted()
    throw new CommandFailed(exitCodes.failed, 'There was no answer, so nothing was done.')
  } finally {
    lines.close()
  }
}
