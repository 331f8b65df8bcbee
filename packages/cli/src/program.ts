/** The program `integration-host`: the command line with the streams, signals and settings of this OS process. */
import { constants } from 'node:os'
import { disableNodeProxy } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import type { Command } from './command.ts'
import { runCommandLine } from './command-line.ts'
import { CommandFailed } from './exit-code.ts'

/** Runs the command that the arguments of this OS process name, and sets its exit code. `more` are further commands. */
export async function runProgram(more: ReadonlyMap<string, Command> = new Map()): Promise<void> {
  disableNodeProxy()
  // npx sets the root of the checkout as working directory. Relative file names in the arguments refer to the user's
  // folder.
  const { INIT_CWD } = process.env
  if (INIT_CWD) process.chdir(INIT_CWD)

  // The reader of a pipe, such as `head`, may exit early. The command then stops without an error.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
    process.exit()
  })

  const stop = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    // The handler is removed after the first signal, so a second signal ends the process immediately.
    process.once(signal, () =>
      stop.abort(new CommandFailed(128 + constants.signals[signal], `Stopped by ${signal}.`)),
    )
  }

  const terminal = {
    env: process.env,
    stdin: process.stdin,
    stdout: process.stdout,
    stderr: process.stderr,
    now: () => performance.now(),
    wallClock: Date.now,
    signal: stop.signal,
  }
  process.exitCode = await runCommandLine(process.argv.slice(2), terminal, more)
}
