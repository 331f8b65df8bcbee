import type { Command } from '@integration-host/cli/command'
import { enterProject, FOLDER_HELP, folderArguments } from './project-folder.ts'

export const start: Command = {
  summary: 'run your processes with your provider, on one machine',
  usage: '[FOLDER] [--free-ports]',
  help: `Runs all services in this OS process, on the loopback interface, with the data in files that survive a power failure. It needs
neither Redis nor RabbitMQ nor Postgres, and runs until it receives SIGTERM or Ctrl-C. The first start makes the keys.

${FOLDER_HELP} (default info)

  DISCOVERY_URL, CLIENT_ID, CLIENT_SECRET (or CLIENT_SECRET_FILE)   the provider; required
  REDIRECT, ACCOUNTING_URL, AUTHORIZE and the other settings of docs/settings.md

Examples:
  integration-host start
  DATA_DIR=/var/lib/integration-host integration-host start /srv/my-processes`,
  async run(args, { signal: stop, stdout, stderr }) {
    const { folder, ports } = folderArguments(args)
    enterProject(folder)
    const [{ runHost }, { terminalLog }, { addresses, signInLines }] = await Promise.all([
      import('../run-host.ts'),
      import('@integration-host/shared/observability/logger'),
      import('../banner.ts'),
    ])
    await runHost({
      command: 'integration-host start',
      ports,
      provider: 'real',
      logTo: stdout.isTTY === true ? terminalLog(stdout, { omitRequests: true }) : stdout,
      logLevel: 'info',
      stop,
      withConsole: true,
      onStarted: (host) =>
        void stderr.write(`${addresses(host)}\n${signInLines(host, stderr.isTTY === true)}`),
    })
    return 0
  },
}
