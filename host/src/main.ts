// `npm start`: runs all services in one OS process (the embedded host) until Ctrl-C.
import { logLevels } from '@integration-host/shared/process/config'
import { terminalLog } from '@integration-host/shared/observability/logger'
import { banner } from './banner.ts'
import { readOptions } from './read-options.ts'
import { runHost } from './run-host.ts'

const HELP = `Usage: npm start [-- --free-ports]

Runs all services in one process on embedded backends; Ctrl-C ends it.

  --free-ports   unused ports instead of 7216 to 7222

  PROCESSES      folders and packages with process files (default: the processes of this repository)
  DATA_DIR       where all data is stored (default ./data)
  LOG_LEVEL      ${logLevels.join(' ')} (default info)
  DISCOVERY_URL, CLIENT_ID, CLIENT_SECRET   a real provider instead of the sandbox
`

const isGiven = readOptions(HELP, ['free-ports'])

// On a terminal the log is readable text. Otherwise it is JSON lines.
const logTo = process.stdout.isTTY
  ? terminalLog(process.stdout, { omitRequests: true })
  : process.stdout

await runHost({
  command: 'npm start --',
  ports: isGiven('free-ports') ? 'free' : 'standard',
  logTo,
  logLevel: 'info',
  withConsole: true,
  onStarted: (host) => void process.stderr.write(banner(host, process.stderr.isTTY)),
})
