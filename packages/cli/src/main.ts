// `npx integration-host …`: the entry of the command line.
import { constants } from 'node:os'
import { runCommandLine } from './command-line.ts'
import { CommandFailed } from './exit-code.ts'

// npx runs the program in the root of the checkout, but relative file names in arguments refer to the user's folder.
const { INIT_CWD } = process.env
if (INIT_CWD) process.chdir(INIT_CWD)

// If the reader of the pipe, such as head, exits early, the command stops without an error.
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

process.exitCode = await runCommandLine(process.argv.slice(2), {
  env: process.env,
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  now: () => performance.now(),
  signal: stop.signal,
})
