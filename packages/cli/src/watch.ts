/** Shows a result again and again: redrawn on a terminal, as new lines otherwise. */
import { setTimeout as delay } from 'node:timers/promises'
import { wholeNumber } from './command.ts'
import { CommandFailed, exitCodes, UsageError } from './exit-code.ts'
import { notify, print, type Terminal } from './terminal.ts'

export const watchOptions = { watch: { type: 'boolean' }, interval: { type: 'string' } } as const
const DEFAULT_SECONDS = 2
const MAX_SECONDS = 3_600
export const WATCH_HELP = `  --watch             show it again until Ctrl-C: redrawn on a terminal, otherwise what has changed
  --interval SECONDS  how often (default ${DEFAULT_SECONDS}, at most ${MAX_SECONDS})`

/** Returns the value of `--interval` in milliseconds. @throws {UsageError} it is not a number from 1 to 3600. */
export function intervalOf(text: string | undefined): number {
  const seconds = wholeNumber('--interval', text ?? String(DEFAULT_SECONDS))
  if (seconds < 1 || seconds > MAX_SECONDS)
    throw new UsageError(`--interval must be 1 to ${MAX_SECONDS}`)
  return seconds * 1_000
}

/** Waits until the next look. @throws {CommandFailed} the process received a signal meanwhile. */
async function pause(ms: number, { signal, sleep }: Terminal): Promise<void> {
  if (sleep !== undefined) await sleep(ms)
  else await delay(ms, undefined, { signal }).catch(() => {})
  signal.throwIfAborted()
}

/**
 * Runs `look` at every interval until `look` returns `false`. After the first success a service that cannot be reached
 * ends nothing, because it may be restarting.
 */
export async function repeat(
  intervalMs: number,
  terminal: Terminal,
  look: () => Promise<boolean>,
): Promise<void> {
  let hasWorked = false
  for (;;) {
    try {
      if (!(await look())) return
      hasWorked = true
    } catch (error) {
      const isUnreachable =
        error instanceof CommandFailed && error.exitCode === exitCodes.unreachable
      if (!hasWorked || !isUnreachable) throw error
      notify(terminal, error.message)
    }
    await pause(intervalMs, terminal)
  }
}

/** Returns the function that replaces the lines that it has printed before by new ones. Lines that do not fit are left out. */
export function createScreen(terminal: Terminal): (lines: readonly string[]) => Promise<void> {
  let shown = 0
  return async (lines) => {
    const { rows } = terminal.stdout
    const fitting = rows === undefined ? lines : lines.slice(0, Math.max(1, rows - 1))
    // Moves the cursor up to the first line, and clears from there to the end of the screen.
    if (shown > 0) terminal.stdout.write(`\x1b[${shown}A\x1b[J`)
    await print(terminal, ...fitting)
    shown = fitting.length
  }
}
