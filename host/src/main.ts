// `npm start`: runs all services in one OS process (the embedded host) until Ctrl-C.
import { parseArgs } from 'node:util'
import { logLevels, parseConfig } from '@integration-host/shared/process/config'
import { terminalLog } from '@integration-host/shared/observability/terminal-log'
import { runService, StartupError } from '@integration-host/shared/process/lifecycle'
import { z } from 'zod'
import { banner } from './banner.ts'
import { startHost } from './host.ts'

const HELP = `Usage: npm start [-- --free-ports]

Runs all services in one process on embedded backends; Ctrl-C ends it.

  --free-ports   unused ports instead of 7216 to 7220

  DATA_DIR       where all data is stored (default ./data)
  LOG_LEVEL      ${logLevels.join(' ')} (default info)
  DISCOVERY_URL, CLIENT_ID, CLIENT_SECRET   a real provider instead of the sandbox
`

const Settings = z.object({
  DATA_DIR: z.string().default('./data'),
  LOG_LEVEL: z.enum(logLevels).default('info'),
})
const { values } = parseArgs({
  options: { help: { type: 'boolean', short: 'h' }, 'free-ports': { type: 'boolean' } },
})
if (values.help) {
  process.stdout.write(HELP)
  process.exit()
}

// The log is readable text on a terminal, and JSON lines if it is redirected.
const logTo = process.stdout.isTTY
  ? terminalLog(process.stdout, { omitRequests: true })
  : process.stdout

await runService(
  'integration-host',
  async () => {
    const { DATA_DIR: dataDir, LOG_LEVEL: logLevel } = parseConfig(Settings, process.env)
    const ports = values['free-ports'] ? 'free' : 'standard'
    const options = { dataDir, ports, env: process.env, logLevel, logTo } as const
    const host = await startHost(options).catch((error: unknown) => {
      const { code, port } = error as { code?: string; port?: number }
      if (code !== 'EADDRINUSE') throw error
      throw new StartupError(
        `port ${port} is taken by another process: stop it, or use npm start -- --free-ports`,
      )
    })
    process.stderr.write(banner(host))
    return { url: host.demoApi, [Symbol.asyncDispose]: () => host[Symbol.asyncDispose]() }
  },
  { logTo },
)
