// `npx integration-host …`: the command line of an installation.
import { constants } from 'node:os'
import { runCommandLine } from './command-line.ts'
import { CommandFailed } from './exit-code.ts'

// npx runs the program in the root of the checkout; relative file names refer to the caller's folder.
const { INIT_CWD } = process.env
if (INIT_CWD) process.chdir(INIT_CWD)

// A reader that closes the pipe early, such as head, is not a failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
  process.exit()
})

const stop = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  // A second signal ends the process immediately, as it has no handler.
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
