// The program that `npx --no -- integration-host …` runs, in the checkout and in the package: the command line, extended by the
// commands that run the embedded host.
import { runProgram } from '@integration-host/cli/program'
import { hostCommands } from './commands/host-commands.ts'

await runProgram(hostCommands)
