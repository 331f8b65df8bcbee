import { execFile } from 'node:child_process'
import { createHmac } from 'node:crypto'
import { mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { eventually } from '@integration-host/shared/test-support/eventually'
import {
  runProcess,
  type StartedProcess,
  startProcess,
} from '@integration-host/shared/test-support/start-process'
import {
  createWebhooksFile,
  startWebhookReceiver,
} from '@integration-host/shared/test-support/webhook-receiver'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { banner } from './banner.ts'
import { type Host, hostReady, startHost } from './host.ts'
import { tellStory } from './story.ts'

const REALM = '4620816365291'
const silent = { stage() {}, line() {} }

describe('the embedded host', () => {
  let dataDir: string
  let log: string

  beforeEach(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'embedded-host-'))
    log = ''
  })
  afterEach(() => rm(dataDir, { recursive: true }))

  async function start(env: Readonly<Record<string, string>> = {}): Promise<Host> {
    const host = await startHost({
      dataDir,
      ports: 'free',
      env,
      logLevel: 'debug',
      logTo: { write: (line) => void (log += line) },
    })
    await hostReady(host)
    return host
  }
  const get = (host: Host, url: string): Promise<Response> =>
    fetch(url, { headers: { Authorization: `Bearer ${host.serviceKey}` } })
  const companyInfo = (host: Host): Promise<Response> =>
    get(
      host,
      `${host.accountingGateway}/v3/company/${REALM}/query?query=select%20*%20from%20CompanyInfo`,
    )

  it('the embedded host runs an order and its replay, and writes one CSV file for each of the two runs', async () => {
    await using host = await start()
    await tellStory(host, silent)
    expect((await readdir(join(dataDir, 'OrderCSV'))).toSorted()).toEqual([
      'Order_66.0.csv',
      'Order_66.1.csv',
    ])
    expect(await readdir(dataDir)).toEqual(
      expect.arrayContaining(['ITSourceMemory.json', 'credentials.json', 'secrets']),
    )
  })

  it('the embedded host delivers webhooks about the connected company and about its transactions', async () => {
    await using receiver = await startWebhookReceiver()
    await using file = await createWebhooksFile([receiver.entry()])
    await using host = await start(file.env)
    await tellStory(host, silent)
    await eventually(() =>
      expect(receiver.received.map(({ type }) => type).toSorted()).toEqual([
        'credential.stored',
        'transaction.completed',
        'transaction.completed',
      ]),
    )
    expect(receiver.forged).toEqual([])
  })

  it('the embedded host accepts a notification that is signed with the verifier token of the sandbox', async () => {
    await using host = await start()
    const token = await readFile(join(dataDir, 'secrets/webhook_verifier_tokens'), 'utf8')
    const entities = [
      { name: 'Invoice', id: '1', operation: 'Create', lastUpdated: '2026-11-23T17:05:09Z' },
    ]
    const body = JSON.stringify({
      eventNotifications: [{ realmId: REALM, dataChangeEvent: { entities } }],
    })
    const send = (key: string): Promise<Response> =>
      fetch(`${host.webhookReceiver}/webhooks/intuit`, {
        method: 'POST',
        headers: { 'intuit-signature': createHmac('sha256', key).update(body).digest('base64') },
        body,
      })
    expect((await send('another verifier token')).status).toBe(403)
    expect(await (await send(token)).json()).toEqual({ published: 1, ignored: 0 })
    expect(log).not.toContain(token)
  })

  it('the sandbox of the embedded host sends webhooks, and the receiver publishes their events', async () => {
    await using host = await start()
    const { status } = await fetch(
      `${host.sandboxProvider}/sandbox/webhooks`,
      postJson({ realm: REALM, entity: 'Customer', operation: 'create', count: 3 }),
    )
    expect(status).toBe(202)
    await eventually(async () => {
      const metrics = await (await fetch(`${host.webhookReceiver}/metrics`)).text()
      expect(metrics).toMatch(
        /^webhook_events_published_total\{.*entity="Customer",operation="create".*\} 3$/m,
      )
    })
  })

  it('the embedded host with a real provider starts no webhook receiver if WEBHOOK_VERIFIER_TOKENS is not set', async () => {
    const env = {
      CLIENT_ID: 'real',
      CLIENT_SECRET: 'secret',
      DISCOVERY_URL: 'http://127.0.0.1:1/discovery',
      ACCOUNTING_URL: 'http://127.0.0.1:1',
    }
    const options = { dataDir, ports: 'free', logLevel: 'silent', logTo: { write() {} } } as const
    {
      await using host = await startHost({ ...options, env })
      expect(host.webhookReceiver).toBeNull()
    }
    await using host = await startHost({
      ...options,
      env: { ...env, WEBHOOK_VERIFIER_TOKENS: 'token-of-the-developer-portal' },
    })
    expect((await fetch(`${host.webhookReceiver}/health/live`)).status).toBe(200)
  })

  it('the embedded host records in its data folder which provider it uses, but only after all services have started', async () => {
    const startWith = (provider: 'sandbox' | 'real', env: Readonly<Record<string, string>>) =>
      startHost({
        dataDir,
        ports: 'free',
        provider,
        env: { DISCOVERY_URL: 'http://127.0.0.1:1/', CLIENT_ID: 'a', CLIENT_SECRET: 'b', ...env },
        logLevel: 'fatal',
        logTo: { write() {} },
      })
    await expect(startWith('real', { LOCAL_PULL_SECONDS: 'x' })).rejects.toThrow('LOCAL_PULL')
    expect(await readdir(dataDir)).not.toContain('provider')
    // This simulates a power failure, which can leave the file without content.
    await writeFile(join(dataDir, 'provider'), '')
    await (await startWith('sandbox', {}))[Symbol.asyncDispose]()
    await expect(startWith('real', {})).rejects.toThrow('has companies of the sandbox provider')
  })

  it('the embedded host uses the sandbox and ignores the other settings of a real provider if DISCOVERY_URL is empty', async () => {
    await using host = await start({
      CLIENT_ID: 'real',
      REDIRECT: 'https://app.example/callback',
      ACCOUNTING_URL: 'https://accounting.invalid',
      DISCOVERY_URL: '',
    })
    expect(await tellStory(host, silent)).toEqual({ realm: REALM, number: '66' })
  })

  it('the embedded host keeps the connected company and the orders across a restart', async () => {
    {
      await using host = await start()
      await tellStory(host, silent)
    }
    await using host = await start()
    expect((await companyInfo(host)).status).toBe(200)
    const refreshed = await fetch(`${host.tokenService}/credentials/ACC-${REALM}/refresh`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${host.serviceKey}` },
    })
    expect(await refreshed.json()).toMatchObject({ Status: 'active', Version: 2 })
    const answer = await fetch(`${host.demoApi}/replay?number=66`)
    expect([answer.status, await answer.text()]).toEqual([200, 'Replay started for 66'])
  })

  it('the embedded host logs no token or key, encrypts stored tokens, and makes secret files readable by the owner only', async () => {
    await using host = await start()
    await tellStory(host, silent)
    const token = (await (
      await get(host, `${host.tokenService}/credentials/ACC-${REALM}/token`)
    ).json()) as { Authenticator: string }
    expect(await readFile(join(dataDir, 'credentials.json'), 'utf8')).not.toContain(
      token.Authenticator,
    )
    for (const secret of [token.Authenticator, host.serviceKey]) expect(log).not.toContain(secret)
    for (const file of [
      'credentials.json',
      'secrets/credential_keys',
      'secrets/service_api_key',
      'secrets/application_key',
      'secrets/service_keys.json',
      'sandbox-provider.bin',
    ]) {
      expect([file, (await stat(join(dataDir, file))).mode & 0o077]).toEqual([file, 0])
    }
  })

  it('the embedded host does not start with a data folder that another running host uses', async () => {
    await using host = await start()
    await expect(start()).rejects.toMatchObject({
      name: 'StartupError',
      message: expect.stringContaining(dataDir),
    })
    expect((await fetch(`${host.demoApi}/queue?number=1`)).status).toBe(200)
  })

  it.each(['ITSourceMemory.json', 'credentials.json'])(
    'the embedded host refuses to start if %s is damaged, names the file, and does not change it',
    async (file) => {
      {
        await using host = await start()
        await tellStory(host, silent)
      }
      const path = join(dataDir, file)
      await truncate(path, 40)
      const damaged = await readFile(path)
      await expect(start()).rejects.toMatchObject({
        name: 'StartupError',
        message: expect.stringContaining(path),
      })
      expect(await readFile(path)).toEqual(damaged)
    },
  )

  it('after SIGKILL and a restart, the embedded host still has the transactions that were queued before the signal', async () => {
    const main = fileURLToPath(new URL('main.ts', import.meta.url))
    const run = () => startProcess([main, '--free-ports'], { env: { DATA_DIR: dataDir } })
    const demoApiOf = async (started: StartedProcess): Promise<string> =>
      (await started.waitForOutput(/demo-api\s+(\S+)/))[1] ?? ''
    await using first = run()
    const ask = async (path: string): Promise<string> => (await fetch(path)).text()
    expect(await ask(`${await demoApiOf(first)}/queue?number=66`)).toBe('Enqueued 66')
    await first.stop('SIGKILL')
    await using second = run()
    const replay = `${await demoApiOf(second)}/replay?number=66`
    await eventually(async () => expect(await ask(replay)).toBe('Replay started for 66'))
  })

  it('the embedded host does not start and generates no keys if the keys of stored credentials are missing', async () => {
    {
      await using host = await start()
      await tellStory(host, silent)
    }
    const path = join(dataDir, 'secrets/credential_keys')
    await rm(path)
    await expect(start()).rejects.toMatchObject({
      name: 'StartupError',
      message: expect.stringContaining(path),
    })
    await expect(stat(path)).rejects.toMatchObject({ code: 'ENOENT' })
  })

  it('the start of the embedded host fails with an error that names DATA_DIR if this setting names a file', async () => {
    const path = join(dataDir, 'a-file')
    await writeFile(path, '')
    dataDir = path
    await expect(start()).rejects.toMatchObject({ message: expect.stringContaining('DATA_DIR') })
    dataDir = dirname(path)
  })

  it('the embedded host does not start and changes no credential if stored credentials were encrypted with other keys', async () => {
    {
      await using host = await start()
      await tellStory(host, silent)
    }
    const before = await readFile(join(dataDir, 'credentials.json'))
    await writeFile(
      join(dataDir, 'secrets/credential_keys'),
      `k1:${Buffer.alloc(32, 7).toString('base64')}`,
    )
    await expect(start()).rejects.toMatchObject({
      name: 'StartupError',
      message: expect.stringContaining('credentials.json'),
    })
    expect(await readFile(join(dataDir, 'credentials.json'))).toEqual(before)
  })

  it('the embedded host creates a key without permission to export grants, and never recreates the key after its revocation', async () => {
    const list = join(dataDir, 'secrets/service_keys.json')
    const statusOf = async (method: string, url: string): Promise<number> => {
      const key = await readFile(join(dataDir, 'secrets/application_key'), 'utf8')
      const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' }
      const response = await fetch(url, {
        method,
        headers,
        ...(method === 'POST' && { body: '{}' }),
      })
      await response.body?.cancel()
      return response.status
    }
    let listed: string
    {
      await using host = await start()
      listed = await readFile(list, 'utf8')
      expect(await statusOf('GET', `${host.coordinator}/processes`)).toBe(200)
      expect(await statusOf('GET', `${host.tokenService}/credentials`)).toBe(200)
      expect(await statusOf('POST', `${host.tokenService}/exports`)).toBe(403)
    }
    {
      await using host = await start()
      expect(await readFile(list, 'utf8')).toBe(listed)
      expect(await statusOf('GET', `${host.coordinator}/processes`)).toBe(200)
    }
    await writeFile(list, '[]')
    await using host = await start()
    expect(await readFile(list, 'utf8')).toBe('[]')
    expect(await statusOf('GET', `${host.coordinator}/processes`)).toBe(401)
  })

  it("the banner prints commands that pass the applications' key to curl through standard input instead of an argument", async () => {
    await using host = await start()
    const applicationKey = await readFile(join(dataDir, 'secrets/application_key'), 'utf8')
    const commands = banner(host, false)
      .split('\n')
      .flatMap((line) => /^ {2}(.*) \| curl -H @- /.exec(line)?.[1] ?? [])
    expect(commands).toHaveLength(2)
    for (const command of commands) {
      const { stdout } = await promisify(execFile)('sh', ['-c', command])
      expect(stdout.trim()).toBe(`Authorization: Bearer ${applicationKey}`)
    }
    for (const secret of [applicationKey, host.serviceKey])
      expect(banner(host, false)).not.toContain(secret)
    const key = { SERVICE_API_KEY: host.serviceKey }
    const [command = ''] =
      / {2}(printf .*) \| curl/.exec(banner({ ...host, applicationKeyFile: null }, false)) ?? []
    const printed = command.replace(/ \| curl$/, '')
    const { stdout } = await promisify(execFile)('sh', ['-c', printed], { env: key })
    expect(stdout).toBe(`Authorization: Bearer ${host.serviceKey}\n`)
  })

  it("the banner has the console's sign-in link only on a terminal", async () => {
    await using host = await startHost({
      dataDir,
      ports: 'free',
      env: {},
      logLevel: 'silent',
      logTo: { write() {} },
      withConsole: true,
    })
    expect(banner(host, true)).toContain(`${host.console?.url}/sign-in#`)
    expect(banner(host, false)).not.toContain('sign-in#')
    expect(banner(host, false)).toContain('npx --no -- integration-host console sign-in')
  })

  it('`npm run demo` prints each step of the demo and exits with code 0', async () => {
    const demo = fileURLToPath(new URL('demo.ts', import.meta.url))
    const { code, stdout } = await runProcess([demo], { env: { DATA_DIR: dataDir } })
    expect(code).toBe(0)
    for (const told of [
      'ACC-4620816365291 stored',
      'Rosewood Interiors',
      'step csv',
      'run 1 of 66: Completed',
      'Order_66.1.csv',
    ]) {
      expect(stdout).toContain(told)
    }
    // The demo does not start the console, which would bundle the program of the browser first.
    const logged = await readFile(join(dataDir, 'demo', 'demo.log'), 'utf8')
    const services = logged
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { service: string }).service)
    expect(new Set(services)).toContain('coordinator')
    expect(new Set(services)).not.toContain('console')
  })
})

describe('the arguments of `npm start` and `npm run demo`', () => {
  it.each(['main.ts', 'demo.ts'])(
    '`%s` rejects an unknown argument: it prints an error on one line and the usage, and exits with code 2',
    async (file) => {
      const { code, stdout, stderr } = await runProcess([
        join(import.meta.dirname, file),
        '--bogus',
      ])
      expect([code, stdout]).toEqual([2, ''])
      expect(stderr).toMatch(/^Unknown option '--bogus'\.\n\nUsage: npm /)
      expect(stderr).not.toContain('    at ')
    },
  )
})
