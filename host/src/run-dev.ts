/** The command `dev`: the embedded host with the sandbox provider, a connected company, and a line for each step. */
import { relative } from 'node:path'
import { plain, print, type Terminal } from '@integration-host/cli/terminal'
import { COMMAND_LINE } from '@integration-host/shared/command-line'
import { type LogStream, terminalLog } from '@integration-host/shared/observability/logger'
import installation from '../../package.json' with { type: 'json' }
import { addresses, signInLines } from './banner.ts'
import { type Host, hostReady } from './host.ts'
import { runHost } from './run-host.ts'
import { type StepLine, stepLines } from './step-lines.ts'
import { COMPANY, connectCompany } from './story.ts'

/** Runs the host until the terminal's signal is aborted, and then ends the OS process. */
export const runDev = (ports: 'free' | 'standard', terminal: Terminal): Promise<void> =>
  runHost({
    command: 'integration-host dev',
    ports,
    provider: 'sandbox',
    watchesProcesses: true,
    withConsole: true,
    logTo: logOf(terminal),
    logLevel: 'info',
    stop: terminal.signal,
    async onStarted(host) {
      await hostReady(host)
      await connectOnce(host)
      await fillBooks(host)
      await print(terminal, await welcome(host, terminal.stdout.isTTY === true))
      void showSteps(host, terminal)
    },
  })

/**
 * Returns the log of `dev`, which shows warnings and the loaded processes. If `LOG_LEVEL` is set, it shows all lines
 * from that level on.
 *
 * Warnings about the dependency `processes` are omitted, because the log already has a line for each file that does
 * not load; and those about attempts, because each attempt has a line of its own.
 */
function logOf({ env, stderr }: Terminal): LogStream {
  const log = terminalLog(stderr)
  if (env['LOG_LEVEL']) return log
  return {
    write(line) {
      const { level, msg, dependency } = JSON.parse(line) as Readonly<Record<string, unknown>>
      if (dependency === 'processes' || msg === 'step did not complete in this attempt') return
      if (level !== 'info' || msg === 'processes loaded') log.write(line)
    },
  }
}

async function connectOnce(host: Host): Promise<void> {
  const response = await get(host, `${host.tokenService}/credentials/ACC-${COMPANY.realm}`)
  await response.body?.cancel()
  if (response.status !== 404) return
  await connectCompany(host, { stage() {}, line() {} })
}

/**
 * Fills the books of the company with sample objects, so that processes find customers, invoices and other objects to
 * read. The sandbox provider keeps books in memory only, so this is done at every start.
 */
async function fillBooks(host: Host): Promise<void> {
  const response = await fetch(`${host.sandboxProvider}/sandbox/companies/${COMPANY.realm}/books`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
  })
  const text = await response.text()
  if (!response.ok)
    throw new Error(`the sandbox provider did not fill the books: ${response.status} ${text}`)
}

async function welcome(host: Host, isTerminal: boolean): Promise<string> {
  const response = await get(host, `${host.coordinator}/processes`)
  const { items } = (await response.json()) as {
    items: readonly { Process: string; Steps: readonly string[]; BuiltIn?: boolean }[]
  }
  const own = items.filter(({ BuiltIn }) => BuiltIn !== true)
  const name = own[0]?.Process ?? 'PROCESS'
  return `
Integration Host ${installation.version} with a sandbox provider. Ctrl-C stops it; all data is in ${relative('.', host.dataDir) || '.'}.

  processes           ${own.map(({ Process, Steps }) => `${Process} (${Steps.join(', ')})`).join(', ') || 'none'}
  connected company   ${COMPANY.name}, realm ${COMPANY.realm}, with sample books
${addresses(host)}
${signInLines(host, isTerminal)}Queue a transaction in another terminal:

  ${host.coordinator.endsWith(':7219') ? '' : `COORDINATOR_URL=${host.coordinator} `}${COMMAND_LINE} transactions queue ID --process ${name} --realm ${COMPANY.realm} --data '{…}'
`
}

async function showSteps(host: Host, terminal: Terminal): Promise<void> {
  const time = (at: string): string =>
    new Date(at).toLocaleTimeString('en-GB', { hourCycle: 'h23' })
  const show = ({ at, run, parts }: StepLine): Promise<void> =>
    print(terminal, [time(at), run, ...parts].map(plain).join('  '))
  await stepLines(host, terminal.signal, show)
}

const get = (host: Host, url: string): Promise<Response> =>
  fetch(url, { headers: { Authorization: `Bearer ${host.serviceKey}` } })
