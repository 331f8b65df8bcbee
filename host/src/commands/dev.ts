import type { Command } from '@integration-host/cli/command'
import { enterProject, FOLDER_HELP, folderArguments } from './project-folder.ts'

export const dev: Command = {
  summary: 'run your processes with a sandbox provider, and show each step',
  usage: '[FOLDER] [--free-ports]',
  help: `Runs all services in this OS process, on the loopback interface, with a sandbox in place of your provider. A company of the
sandbox is connected already. Prints each step of a run when it ends; Ctrl-C ends it. A changed process file is in force for the next
step. If it does not load, its line is named, and the last version stays in force.

${FOLDER_HELP} (default: warnings, and the processes that were loaded)

The settings of a provider (DISCOVERY_URL, ACCOUNTING_URL, CLIENT_ID, REDIRECT) are ignored.

Examples:
  integration-host dev
  integration-host dev my-processes --free-ports`,
  async run(args, terminal) {
    const { folder, ports } = folderArguments(args)
    enterProject(folder)
    const { runDev } = await import('../run-dev.ts')
    await runDev(ports, terminal)
    return 0
  },
}
