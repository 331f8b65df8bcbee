// The program that `npx --no -- integration-host …` runs, in the checkout and in the package: the command line, extended by the
// commands that run the embedded host.
import { runProgram } from '@integration-host/cli/program'
import { dev } from './commands/dev.ts'
import { init } from './commands/init.ts'
import { start } from './commands/start.ts'

await runProgram(
  new Map([
    ['init', init],
    ['dev', dev],
    ['start', start],
  ]),
)
