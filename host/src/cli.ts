// The program `npx integration-host …` of the checkout and of the package: the command line with the commands that run
// the embedded host.
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
