/** The input and output of commands: results go to standard output, everything else to standard error. */
import { once } from 'node:events'
import { createInterface } from 'node:readline/promises'
import { Writable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { stripVTControlCharacters, styleText } from 'node:util'
import type { Environment } from '@integration-host/shared/process/config'
import { Secret } from '@integration-host/shared/secrets/secret'
import { CommandFailed, exitCodes } from './exit-code.ts'

type Input = NodeJS.ReadableStream & { readonly isTTY?: boolean }
type Output = NodeJS.WritableStream & {
  readonly isTTY?: boolean
  /** The numbers of columns and rows of a terminal. */
  readonly columns?: number
  readonly rows?: number
}

/** The environment of a command: settings, streams, clock and signals. Tests use a replacement of this environment. */
export interface Terminal {
  readonly env: Environment
  readonly stdin: Input
  readonly stdout: Output
  readonly stderr: Output
  /** A monotonic clock, in milliseconds. Only differences of its values have a meaning. */
  readonly now: () => number
  /** The time of day, in milliseconds since the epoch. */
  readonly wallClock: () => number
  /** Replaces the waits of {@link pause}. */
  readonly sleep?: (ms: number) => Promise<void>
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

/** Returns the text on one line without control characters, so that a response cannot control the terminal. */
export const plain = (text: string): string =>
  text.replace(/\s+/g, ' ').replace(/[\p{Cc}\p{Cf}]/gu, '�')

/** The maximum number of characters that a table cell shows of a long text, such as an error message. */
const SHORT = 60

/** Returns the beginning of a text on one line, without control characters. */
export function shortLine(text: string): string {
  const line = plain(text)
  return line.length <= SHORT ? line : `${line.slice(0, SHORT).toWellFormed()}…`
}

/** Waits. @throws {CommandFailed} the process received a signal before the end of the wait. */
export async function pause(ms: number, { signal, sleep }: Terminal): Promise<void> {
  if (sleep !== undefined) await sleep(ms)
  else await delay(ms, undefined, { signal }).catch(() => {})
  signal.throwIfAborted()
}

/** Returns a number with its noun, such as `1 credential` or `2 credentials`. */
export const counted = (count: number, noun: string, plural = `${noun}s`): string =>
  `${count} ${count === 1 ? noun : plural}`

/**
 * Returns the number of columns of a terminal; `undefined` if the output is not a terminal, or its width is unknown.
 */
export const widthOf = ({ stdout }: Terminal): number | undefined =>
  stdout.isTTY === true && stdout.columns !== undefined && stdout.columns > 0
    ? stdout.columns
    : undefined

const GAP = '  '
/** The minimum width of a column. To make a table fit the terminal, wider columns are cut, but not below this width. */
const MIN_COLUMN = 6

type Cell = string | number | null | undefined
type CellMember<Item> = {
  [Name in keyof Item]-?: Item[Name] extends Cell ? Name : never
}[keyof Item]

/** The columns of a table by their headers: the member of an item that a column shows, or a function that returns it. */
export type Columns<Item> = Readonly<Record<string, CellMember<Item> | ((item: Item) => Cell)>>

const cellsOf = <Item>(columns: Columns<Item>, item: Item): string[] =>
  Object.values(columns).map((column) => {
    const cell = typeof column === 'function' ? column(item) : (item[column] as Cell)
    return plain(String(cell ?? ''))
  })

/**
 * Returns a function that formats items as lines with aligned columns. The first call also returns the header line. In
 * later calls each column is at least as wide as in earlier calls. If `width` is given, the widest columns are cut
 * until the lines fit. The first column identifies the item and is never cut.
 */
export function createTable<Item>(
  columns: Columns<Item>,
  width?: number,
  /** Colours the text of a cell. The text has already been padded to the width of its column. */
  paintCell: (text: string, header: string) => string = (text) => text,
): (items: readonly Item[]) => string[] {
  const headers = Object.keys(columns)
  const widths = headers.map(() => 0)
  let isStarted = false
  return (items) => {
    const rows = items.map((item) => cellsOf(columns, item))
    const all = isStarted ? rows : [headers, ...rows]
    isStarted = true
    for (const row of all)
      for (const [column, text] of row.entries())
        widths[column] = Math.max(widths[column] ?? 0, columnsOf(text))
    const shown = width === undefined ? widths : fitted(widths, width)
    return all.map((row) =>
      row
        .map((text, column) => paintCell(padded(text, shown[column] ?? 0), headers[column] ?? ''))
        .join(GAP)
        .trimEnd(),
    )
  }
}

/** Returns the widths of the columns of a table that is at most `width` wide, if that is possible. */
function fitted(widths: readonly number[], width: number): number[] {
  const [first = 0, ...others] = widths
  const left = width - first - GAP.length * others.length
  // `limit` is lowered until the table fits. A column that is wider than `limit` is cut to `limit`; a narrower column
  // keeps its width.
  let limit = Math.max(MIN_COLUMN, ...others)
  while (
    limit > MIN_COLUMN &&
    others.reduce((sum, column) => sum + Math.min(column, limit), 0) > left
  )
    limit -= 1
  return [first, ...others.map((column) => Math.min(column, limit))]
}

/** Returns the text with exactly this many columns: padded, or cut if it is longer. */
function padded(text: string, width: number): string {
  const columns = columnsOf(text)
  if (columns <= width) return text + ' '.repeat(width - columns)
  let cut = ''
  let used = 0
  for (const character of text) {
    used += columnsOf(character)
    if (used > width - 1) break
    cut += character
  }
  return `${cut}…${' '.repeat(Math.max(0, width - 1 - columnsOf(cut)))}`
}

/** East Asian characters and emoji take two columns of a terminal. */
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/gu
const NARROW_ONLY = /^[\x20-\x7e]*$/

/** Returns how many columns of a terminal a text takes. */
function columnsOf(text: string): number {
  if (NARROW_ONLY.test(text)) return text.length
  return Array.from(text.replace(/\p{M}/gu, '')).length + (text.match(WIDE)?.length ?? 0)
}

/** Returns how many rows of the terminal a line takes. The terminal wraps a line that is longer than a row. */
export function rowsOf(line: string, terminal: Terminal): number {
  const width = widthOf(terminal) ?? Number.POSITIVE_INFINITY
  let rows = 1
  let used = 0
  for (const character of stripVTControlCharacters(line)) {
    const columns = columnsOf(character)
    // A character of two columns is not split: if only one column is left, the character begins the next row.
    if (used + columns > width) {
      rows += 1
      used = 0
    }
    used += columns
  }
  return rows
}

export type Colour = 'green' | 'yellow' | 'red' | 'dim'

/**
 * Returns a function that colours text. Without a terminal or with NO_COLOR set (no-color.org), the function returns
 * the text unchanged.
 */
export function painter({ stdout, env }: Terminal): (colour: Colour, text: string) => string {
  const isColoured = stdout.isTTY === true && !env['NO_COLOR'] && env['TERM'] !== 'dumb'
  return (colour, text) => (isColoured ? styleText(colour, text, { validateStream: false }) : text)
}

/** Returns the function with which {@link createTable} colours the cells of the column `STATUS` by their text. */
export function statusPainter(
  terminal: Terminal,
  colours: Readonly<Record<string, Colour>>,
): (text: string, header: string) => string {
  const paint = painter(terminal)
  return (text, header) => {
    const colour = header === 'STATUS' ? colours[text.trimEnd()] : undefined
    return colour === undefined ? text : paint(colour, text)
  }
}

/**
 * Returns the lines of a table of check results, each with its `note` below it, if there is one. The first column is the
 * verdict, which has the colour of the result.
 */
export function verdictTable<Item>(
  columns: Columns<Item>,
  items: readonly Item[],
  detailOf: (item: Item) => { readonly colour: Colour; readonly note: string | null },
  paint: ReturnType<typeof painter>,
): string[] {
  const [header = '', ...rows] = createTable(columns)(items)
  const indent = ' '.repeat(header.indexOf(Object.keys(columns)[1] ?? ''))
  const lines = items.flatMap((item, index) => {
    const { colour, note } = detailOf(item)
    const [verdict = ''] = cellsOf(columns, item)
    const line = paint(colour, verdict) + (rows[index] ?? '').slice(verdict.length)
    return note === null ? [line] : [line, `${indent}→ ${plain(note)}`]
  })
  return [header, ...lines]
}

const REDRAW_MS = 100
const LINE_MS = 10_000

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
      if (now() - lastAt < (isDrawn ? REDRAW_MS : LINE_MS)) return
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
const prompt = (terminal: Terminal, question: string): Promise<string> =>
  promptOn(terminal, terminal.stderr, question)

/** Prompts for a confirmation; the default is no. */
export const confirm = async (terminal: Terminal, question: string): Promise<boolean> =>
  /^y(es)?$/i.test((await prompt(terminal, `${question} [y/N] `)).trim())

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
    throw new CommandFailed(exitCodes.failed, 'There was no input, so nothing was done.')
  } finally {
    lines.close()
  }
}
