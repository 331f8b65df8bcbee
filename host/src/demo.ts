// `npm run demo`: runs the demo without Redis, PostgreSQL and RabbitMQ, and prints each step. The exit code is 0 if
// every step succeeded.
import { createWriteStream, mkdirSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { ConfigError } from '@integration-host/shared/process/config'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { hostReady, startHost } from './host.ts'
import { readOptions } from './read-options.ts'
import { readRunningInstallation } from './running-installation.ts'
import { type Narrator, requireUsable, StoryFailed, tellStory } from './story.ts'

const HELP = `Usage: npm run demo [-- --running]

Runs the whole demo: connects a company, reads it through the gateway, runs an order, replays it.

  (nothing)   starts everything in this process, on free ports, in <DATA_DIR>/demo, and stops it afterwards
  --running   uses the services that already run: npm start, docker compose, services started by hand; needs
              SERVICE_API_KEY (or SERVICE_API_KEY_FILE) and the sandbox provider. It reads the ports from .env, as
              docker compose does: TOKEN_SERVICE_PORT, ACCOUNTING_GATEWAY_PORT, COORDINATOR_PORT, DEMO_API_PORT; or
              set TOKEN_SERVICE_URL, GATEWAY_URL, COORDINATOR_URL and DEMO_API_URL

  DATA_DIR    where all data is stored (default ./data)
`

const bold = (text: string): string => (process.stdout.isTTY ? `\u001b[1m${text}\u001b[0m` : text)
const shown = (path: string): string => relative(process.cwd(), path) || '.'
const narrator: Narrator = {
  stage: (title) => console.log(`\n${bold(title)}`),
  line: (text) => console.log(`  ${text}`),
}

async function embedded(): Promise<void> {
  const startedAt = performance.now()
  const dataDir = resolve(process.env['DATA_DIR'] || './data', 'demo')
  mkdirSync(dataDir, { recursive: true, mode: 0o700 })
  const logFile = join(dataDir, 'demo.log')
  const log = createWriteStream(logFile, { flags: 'a', mode: 0o600 })
  try {
    narrator.stage('Starting the services and a sandbox provider in this process')
    // The embedded host gets an empty environment, so that settings of another installation do not change the demo.
    const env = {}
    await using host = await startHost({
      dataDir,
      ports: 'free',
      env,
      logLevel: 'info',
      logTo: log,
    })
    await hostReady(host)
    narrator.line(
      `ready after ${((performance.now() - startedAt) / 1_000).toFixed(1)} s; the log is in ${shown(logFile)}`,
    )
    const { number } = await tellStory(host, narrator)
    narrator.stage('Done')
    for (const run of [0, 1])
      narrator.line(shown(join(dataDir, 'OrderCSV', `Order_${number}.${run}.csv`)))
    narrator.line(
      'Next: npm start runs the services until Ctrl-C, and says how to open the web console',
    )
  } finally {
    log.end()
  }
}

async function running(): Promise<void> {
  const installation = readRunningInstallation(process.env, resolve('.env'))
  await requireUsable(installation)
  const { number } = await tellStory(installation, narrator)
  narrator.stage('Done')
  narrator.line(
    `Order_${number}.0.csv and Order_${number}.1.csv are in the coordinator's OrderCSV folder`,
  )
}

const isGiven = readOptions(HELP, ['running'])
try {
  await (isGiven('running') ? running() : embedded())
} catch (error) {
  const isExpected =
    error instanceof StoryFailed || error instanceof StartupError || error instanceof ConfigError
  console.error(`\nThe demo failed: ${isExpected ? error.message : String(error)}`)
  process.exitCode = 1
}
