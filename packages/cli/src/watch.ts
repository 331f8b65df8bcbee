/** Repeats a command at an interval. On a terminal its output is redrawn; otherwise new lines are printed. */
import { durationMsOf, flags, texts } from './command.ts'
import { CommandFailed, exitCodes } from './exit-code.ts'
import { notify, pause, print, rowsOf, type Terminal } from './terminal.ts'

export const watchOptions = { ...flags('watch'), ...texts('interval') }
const DEFAULT_SECONDS = 2
export const INTERVAL_HELP = `  --interval SECONDS  the time between two requests (default ${DEFAULT_SECONDS}, at most 3600)`
export const WATCH_HELP = `  --watch             repeat until Ctrl-C: a terminal is redrawn, otherwise only changes are printed
${INTERVAL_HELP}`

/** Returns the value of `--interval` in milliseconds. @throws {UsageError} the value is not a number from 1 to 3600. */
export const intervalOf = (text: string | undefined): number =>
  durationMsOf('--interval', text, DEFAULT_SECONDS)

/**
 * Runs `poll` at every interval until `poll` returns `false`. After the first success of `poll`, an unreachable service
 * does not end the command, because the service may be restarting. The error is passed to `report` instead.
 */
export async function repeat(
  intervalMs: number,
  terminal: Terminal,
  poll: () => Promise<boolean>,
  report: (message: string) => Promise<void> | void = (message) => notify(terminal, message),
): Promise<void> {
  let hasWorked = false
  for (;;) {
    try {
      if (!(await poll())) return
      hasWorked = true
    } catch (error) {
      const isUnreachable =
        error instanceof CommandFailed && error.exitCode === exitCodes.unreachable
      if (!hasWorked || !isUnreachable) throw error
      await report(error.message)
    }
    await pause(intervalMs, terminal)
  }
}

/**
 * Returns a function that replaces the previously printed lines with new lines. Lines that do not fit on the screen are
 * left out.
 */
export function createScreen(terminal: Terminal): (lines: readonly string[]) => Promise<void> {
  let shown: readonly string[] = []
  return async (lines) => {
    // When the width of a terminal changes, the terminal wraps its lines again. Therefore the rows are counted with the
    // current width.
    const height = shown.reduce((rows, line) => rows + rowsOf(line, terminal), 0)
    // Moves the cursor up to the first line, and clears from there to the end of the screen.
    if (height > 0) terminal.stdout.write(`\x1b[${height}A\x1b[J`)
    const { rows } = terminal.stdout
    // The last row is left free, because the cursor is there after the last line has been printed.
    let space = rows === undefined ? Number.POSITIVE_INFINITY : Math.max(1, rows - 1)
    const end = lines.findIndex((line) => (space -= rowsOf(line, terminal)) < 0)
    shown = end === -1 ? lines : lines.slice(0, end)
    await print(terminal, ...shown)
  }
}
