import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type ProcessResult, runProcess } from '@integration-host/shared/test-support/start-process'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Host, hostReady, startHost } from './host.ts'

const REALM = '4620816365291'
const DEMO = fileURLToPath(new URL('demo.ts', import.meta.url))

describe('`npm run demo -- --running` with two installations on this machine', () => {
  let folder: string
  let own: Host
  let other: Host

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'demo-running-'))
    own = await start('own')
    other = await start('other')
  })
  afterAll(async () => {
    await own?.[Symbol.asyncDispose]()
    await other?.[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })

  async function start(name: string): Promise<Host> {
    const logTo = { write: () => {} }
    const dataDir = join(folder, name)
    const host = await startHost({ dataDir, ports: 'free', env: {}, logLevel: 'fatal', logTo })
    await hostReady(host)
    return host
  }
  const portsOf = (host: Host) => ({
    TOKEN_SERVICE_PORT: new URL(host.tokenService).port,
    ACCOUNTING_GATEWAY_PORT: new URL(host.accountingGateway).port,
    COORDINATOR_PORT: new URL(host.coordinator).port,
    DEMO_API_PORT: new URL(host.demoApi).port,
  })
  const urlsOf = (host: Host) => ({
    TOKEN_SERVICE_URL: host.tokenService,
    GATEWAY_URL: host.accountingGateway,
    COORDINATOR_URL: host.coordinator,
    DEMO_API_URL: host.demoApi,
  })
  const tell = (env: Readonly<Record<string, string>>): Promise<ProcessResult> =>
    runProcess([DEMO, '--running'], {
      cwd: folder,
      env: { SERVICE_API_KEY: own.serviceKey, ...env },
    })
  async function credentialVersion(host: Host): Promise<number | null> {
    const headers = { Authorization: `Bearer ${host.serviceKey}` }
    const response = await fetch(`${host.tokenService}/credentials/ACC-${REALM}`, { headers })
    return response.ok ? ((await response.json()) as { Version: number }).Version : null
  }

  it('`npm run demo -- --running` uses the ports in the file .env, and changes nothing in the other installation', async () => {
    const lines = Object.entries(portsOf(own)).map(([name, value]) => `${name}=${value}\n`)
    await writeFile(join(folder, '.env'), lines.join(''))
    try {
      const { code, stdout, stderr } = await tell({})
      expect([code, stderr]).toEqual([0, ''])
      expect(stdout).toContain('run 1 of 66: Completed')
      expect(await credentialVersion(other)).toBeNull()
    } finally {
      await rm(join(folder, '.env'))
    }
  })

  it('`npm run demo -- --running` uses the addresses in the environment, even if REDIRECT has another loopback host name', async () => {
    const urls = Object.entries(urlsOf(own)).map(([name, url]) => [
      name,
      url.replace('127.0.0.1', 'localhost'),
    ])
    const { code, stdout, stderr } = await tell(Object.fromEntries(urls) as Record<string, string>)
    expect([code, stderr]).toEqual([0, ''])
    expect(stdout).toContain('Completed')
  })

  it.each([
    ['all services', (host: Host) => portsOf(host)],
    [
      'the coordinator',
      (host: Host) => ({ ...portsOf(own), COORDINATOR_PORT: portsOf(host).COORDINATOR_PORT }),
    ],
    [
      'the gateway',
      (host: Host) => ({
        ...portsOf(own),
        ACCOUNTING_GATEWAY_PORT: portsOf(host).ACCOUNTING_GATEWAY_PORT,
      }),
    ],
  ])(
    'the demo changes nothing if the settings lead to %s of an installation with another service key',
    async (_, env) => {
      const before = [await credentialVersion(own), await credentialVersion(other)]
      const { code, stderr } = await tell(env(other))
      expect(code).toBe(1)
      expect(stderr).toContain('rejects the service key (401)')
      expect(stderr).not.toContain(own.serviceKey)
      expect([await credentialVersion(own), await credentialVersion(other)]).toEqual(before)
    },
  )

  it('`npm run demo -- --running` fails if the environment has the URL of only some of the services', async () => {
    const { code, stderr } = await tell({ TOKEN_SERVICE_URL: own.tokenService })
    expect(code).toBe(1)
    expect(stderr).toContain('GATEWAY_URL: is missing beside the other URLs')
  })
})
