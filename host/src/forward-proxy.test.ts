import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readConfig as readSandboxConfig } from '@integration-host/sandbox-provider/config'
import { startSandboxProvider } from '@integration-host/sandbox-provider/service'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { freePorts } from '@integration-host/shared/process/free-ports'
import { eventually } from '@integration-host/shared/test-support/eventually'
import {
  startForwardProxy,
  type TestForwardProxy,
} from '@integration-host/shared/test-support/forward-proxy'
import {
  createWebhooksFile,
  startWebhookReceiver,
} from '@integration-host/shared/test-support/webhook-receiver'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type Host, hostReady, startHost } from './host.ts'
import { COMPANY, connectCompany } from './story.ts'

const CLIENT = { CLIENT_ID: 'client', CLIENT_SECRET: 'secret' }
const PROCESS = `
  import { defineProcess } from 'integration-host'
  export default defineProcess('Abroad')
    .step('target', (step) => step.execute({ url: 'http://target.test/in' }))
    .step('books', (step) => step.execute(
      { url: '/v3/company/' + step.realm + '/companyinfo/' + step.realm },
      { credential: 'ACC-' + step.realm },
    ))`

// Only the proxy resolves the host names of these tests. A request that is not sent through it therefore fails.
describe('an installation in a network that only a forward proxy leaves', () => {
  let stack: AsyncDisposableStack
  let proxy: TestForwardProxy
  let host: Host
  let received: readonly { readonly type: string }[]
  let log: string

  beforeEach(async () => {
    stack = new AsyncDisposableStack()
    log = ''
    const folder = await mkdtemp(join(tmpdir(), 'forward-proxy-'))
    stack.defer(() => rm(folder, { recursive: true }))
    await writeFile(join(folder, 'abroad.ts'), PROCESS)
    const [sandboxPort = 0] = await freePorts(1)
    await startSandbox(sandboxPort)
    const receiver = stack.use(await startWebhookReceiver())
    received = receiver.received
    const webhooks = stack.use(
      await createWebhooksFile([{ ...receiver.entry(), url: 'http://receiver.test/hooks' }]),
    )
    proxy = stack.use(
      await startForwardProxy({
        routes: {
          'provider.test:80': sandboxPort,
          'receiver.test:80': Number(new URL(receiver.url).port),
          'target.test:80': await startTarget(),
        },
      }),
    )
    const passwordFile = join(folder, 'proxy')
    await writeFile(passwordFile, `http://me:hidden-password@${proxy.address}\n`)
    host = stack.use(
      await startHost({
        dataDir: join(folder, 'data'),
        ports: 'free',
        provider: 'real',
        logLevel: 'debug',
        logTo: { write: (line) => void (log += line) },
        env: {
          ...CLIENT,
          ...webhooks.env,
          WEBHOOKS_ALLOWED_HOSTS: 'receiver.test',
          DISCOVERY_URL: 'http://provider.test/.well-known/openid_configuration',
          ACCOUNTING_URL: 'http://provider.test',
          PROCESSES: folder,
          HTTP_PROXY_FILE: passwordFile,
        },
      }),
    )
    await hostReady(host)
  })
  afterEach(() => stack.disposeAsync())

  async function startSandbox(port: number): Promise<void> {
    const logger = createLogger('sandbox-provider', 'silent')
    const config = readSandboxConfig({
      ...CLIENT,
      PORT: String(port),
      BASE_URL: 'http://provider.test',
      BROWSER_URL: `http://127.0.0.1:${port}`,
    })
    stack.use(await startSandboxProvider(config, { logger, health: createHealth(logger) }))
  }

  async function startTarget(): Promise<number> {
    const target = createServer((_, response) => void response.end('{}')).listen(0, '127.0.0.1')
    await once(target, 'listening')
    stack.defer(() => target.closeAllConnections())
    stack.defer(() => void target.close())
    return (target.address() as AddressInfo).port
  }

  const call = (url: string, body?: object): Promise<Response> =>
    fetch(url, {
      method: body === undefined ? 'GET' : 'POST',
      headers: {
        Authorization: `Bearer ${host.serviceKey}`,
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
  /** Runs `work` and returns the hosts to which the proxy opened tunnels in the meantime, each once. */
  const tunnelsDuring = async (work: () => Promise<unknown>): Promise<string[]> => {
    const before = proxy.requests.length
    await work()
    return [...new Set(proxy.requests.slice(before).map(({ to }) => to))]
  }
  const readCompany = async (query = ''): Promise<number> => {
    const { realm } = COMPANY
    const url = `${host.accountingGateway}/v3/company/${realm}/companyinfo/${realm}${query}`
    const response = await call(url)
    await response.text()
    return response.status
  }

  it('sends each call to another party through the proxy, and no call among the services', async () => {
    const silent = { stage() {}, line() {} }
    expect(await tunnelsDuring(() => connectCompany(host, silent))).toContain('provider.test:80')

    const refresh = `${host.tokenService}/credentials/ACC-${COMPANY.realm}/refresh`
    expect(
      await tunnelsDuring(async () => expect((await call(refresh, {})).status).toBe(200)),
    ).toContain('provider.test:80')

    expect(await tunnelsDuring(async () => expect(await readCompany()).toBe(200))).toContain(
      'provider.test:80',
    )
    const upload = `${host.accountingGateway}/v3/company/${COMPANY.realm}/query`
    await eventually(async () =>
      // The gateway reuses the tunnel, on the fast path and, for a large body, on the ordinary path.
      expect(
        await tunnelsDuring(async () => {
          expect(await readCompany()).toBe(200)
          await (await call(upload, { text: 'x'.repeat(200_000) })).text()
        }),
      ).toEqual([]),
    )

    const runs = `${host.coordinator}/processes/Abroad/transactions`
    const run = { TransactionID: '1', Realm: COMPANY.realm, InitialData: null }
    expect((await call(runs, run)).status).toBe(202)
    await eventually(async () =>
      expect(await (await call(`${runs}/1`)).json()).toMatchObject({ Status: 'Completed' }),
    )
    await eventually(() =>
      expect(received.map(({ type }) => type)).toEqual(
        expect.arrayContaining(['credential.stored', 'transaction.completed']),
      ),
    )

    const hosts = [...new Set(proxy.requests.map(({ to }) => to))].toSorted()
    expect(hosts).toEqual(['provider.test:80', 'receiver.test:80', 'target.test:80'])
    const credentials = Buffer.from('me:hidden-password').toString('base64')
    expect(
      proxy.requests.every(({ authorization }) => authorization === `Basic ${credentials}`),
    ).toBe(true)
    expect(log).toContain(`"http":"${proxy.address}"`)
    expect(log).not.toContain('hidden-password')
    expect(log).not.toContain(credentials)
  })

  it('keeps the grant while the proxy refuses, and refreshes it afterwards', async () => {
    await connectCompany(host, { stage() {}, line() {} })
    const url = `${host.tokenService}/credentials/ACC-${COMPANY.realm}`
    proxy.reply = 'HTTP/1.1 407 Proxy Authentication Required\r\n\r\n'
    const failed = await call(`${url}/refresh`, {})
    expect(failed.status).toBeGreaterThanOrEqual(500)
    expect(await failed.text()).not.toContain('hidden-password')

    proxy.reply = null
    await eventually(async () => expect((await call(`${url}/refresh`, {})).status).toBe(200))
    expect(log).not.toContain('hidden-password')
  })
})
