import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startForwardProxy } from '@integration-host/shared/test-support/forward-proxy'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  type FakeResponse,
  type FakeService,
  problem,
  type Routes,
  startFakeService,
} from '../../test-support/fake-service.ts'
import { run, type Surroundings } from '../../test-support/run.ts'

// tests/flows/cli-doctor.test.ts runs doctor against all services and backends. The tests in this file cover situations
// that real services and backends cannot produce on demand.
let document: Record<string, string>
let provider: FakeService
let discoveryResponse: FakeResponse
let tokenResponse: FakeResponse
beforeEach(async () => {
  tokenResponse = { status: 400, body: { error: 'invalid_grant' } }
  provider = await startFakeService(
    { 'GET /discovery': () => discoveryResponse, 'POST /token': () => tokenResponse },
    null,
  )
  document = {
    issuer: 'https://provider.example',
    authorization_endpoint: 'https://provider.example/authorize',
    token_endpoint: `${provider.url}/token`,
  }
  discoveryResponse = { body: document }
})
afterEach(() => provider[Symbol.asyncDispose]())

const doctor = (args: readonly string[] = [], { env, ...rest }: Surroundings = {}) =>
  run(['doctor', '--only', 'provider', ...args], {
    env: {
      DISCOVERY_URL: `${provider.url}/discovery`,
      CLIENT_ID: 'client',
      CLIENT_SECRET: 'a-secret-1',
      ...env,
    },
    ...rest,
  })

describe('the command `doctor`', () => {
  it('doctor prints a table of the checks, and exits with code 0 if there is no problem', async () => {
    const { code, out, err } = await doctor()
    expect([code, err]).toEqual([0, 'Nothing is wrong.\n'])
    expect(out.split('\n').map((line) => line.split(/ {2,}/).slice(0, 3))).toEqual([
      ['VERDICT', 'SUBJECT', 'CHECK'],
      ['ok', 'provider', 'connection'],
      ['ok', 'provider', 'discovery'],
      ['ok', 'provider', 'key pair'],
      ['ok', 'provider', 'clock'],
      [''],
    ])
  })

  describe('the check of the forward proxy by doctor', () => {
    const startProxy = () =>
      startForwardProxy({ routes: { 'provider.test:80': Number(new URL(provider.url).port) } })
    const through = (address: string) => ({
      DISCOVERY_URL: 'http://provider.test/discovery',
      HTTP_PROXY: `http://me:hidden@${address}`,
    })

    it('the forward proxy connects doctor to the discovery document and the token endpoint', async () => {
      await using proxy = await startProxy()
      document['token_endpoint'] = 'http://provider.test/token'
      const { code, out } = await doctor([], { env: through(proxy.address) })
      expect(code).toBe(0)
      expect(out).toMatch(
        new RegExp(
          `^ok +provider +forward proxy +${proxy.address} connects to provider.test$`,
          'm',
        ),
      )
      expect(out).toMatch(/^ok +provider +key pair/m)
      expect(proxy.requests.map(({ to }) => to)).toEqual(Array(3).fill('provider.test:80'))
    })

    it.each([
      ['HTTP/1.1 407 No\r\n\r\n', '407', 'HTTP_PROXY_FILE'],
      ['HTTP/1.1 403 No\r\n\r\n', '403', 'Let the proxy accept CONNECT to provider.test'],
      ['SSH-2.0-x\r\n', 'did not respond as an HTTP proxy', 'the address of an HTTP forward proxy'],
    ])(
      'doctor says why the proxy that responds with %j opens no connection',
      async (reply, ...texts) => {
        await using proxy = await startProxy()
        proxy.reply = reply
        const { code, out } = await doctor([], { env: through(proxy.address) })
        expect(code).toBe(1)
        for (const text of [...texts, proxy.address]) expect(out).toContain(text)
        expect(out).not.toContain('hidden')
      },
    )
  })

  describe('the check of client id and secret by doctor', () => {
    const keyPair = async (env: Readonly<Record<string, string>> = {}) => {
      const { json, out } = await doctor(['--json'], { env })
      expect(out).not.toMatch(/a-secret|canary/)
      return json.find((line) => (line as { Check: string }).Check === 'key pair')
    }

    it('doctor checks client id and secret at the token endpoint with HTTP Basic and a made-up authorization code', async () => {
      expect(await keyPair({ CLIENT_ID: 'a:b' })).toMatchObject({ Verdict: 'ok' })
      const [request] = provider.requests.filter(({ route }) => route === 'POST /token')
      expect(request?.body).toMatchObject({
        grant_type: 'authorization_code',
        code: expect.stringMatching(/^made-up-/),
      })
      const pair = Buffer.from('a%3Ab:a-secret-1').toString('base64')
      expect(request?.headers.authorization).toBe(`Basic ${pair}`)
    })

    it.each([
      [
        { status: 401, body: { error: 'invalid_client' } },
        'problem',
        'rejected by the token endpoint',
      ],
      [{ status: 401, body: '' }, 'problem', 'rejected by the token endpoint'],
      [{ status: 429, body: '' }, 'warning', 'inconclusive: 429, empty body'],
      [{ body: '{', isCut: true }, 'problem', /^not checked: no response/],
    ])(
      'doctor derives the verdict on client id and secret from the token endpoint response %j',
      async (response, Verdict, found) => {
        tokenResponse = response
        expect(await keyPair()).toMatchObject({ Verdict, Found: expect.stringMatching(found) })
      },
    )

    it.each([
      ['with client id and secret', {}],
      ['without client id and secret', { CLIENT_ID: '', CLIENT_SECRET: '' }],
    ])('doctor, configured %s, reports a failing token endpoint as a problem', async (_, env) => {
      tokenResponse = { status: 500, body: 'canary-1' }
      const { code, json, out } = await doctor(['--json'], { env })
      expect(out).not.toMatch(/a-secret|canary/)
      expect([code, json]).toEqual([
        1,
        expect.arrayContaining([
          expect.objectContaining({
            Check: 'token endpoint',
            Verdict: 'problem',
            Found: 'fails: 500, neither JSON nor XML',
            Mend: expect.stringContaining('docs/runbook.md#refreshesfailing'),
          }),
        ]),
      ])
    })

    it('doctor reports client id and secret as valid if the provider accepts one of several client secrets', async () => {
      await provider[Symbol.asyncDispose]()
      const right = `Basic ${Buffer.from('client:new-secret').toString('base64')}`
      provider = await startFakeService(
        {
          'GET /discovery': () => ({
            body: { ...document, token_endpoint: `${provider.url}/token` },
          }),
          'POST /token': ({ headers }) =>
            headers.authorization === right
              ? tokenResponse
              : { status: 401, body: { error: 'invalid_client' } },
        },
        null,
      )
      expect(await keyPair({ CLIENT_SECRET: 'old-secret, new-secret' })).toMatchObject({
        Verdict: 'ok',
      })
    })

    it('doctor skips the check of client id and secret if CLIENT_ID and CLIENT_SECRET are empty', async () => {
      const { code, json, err } = await doctor(['--json'], {
        env: { CLIENT_ID: '', CLIENT_SECRET: '' },
      })
      expect([code, err]).toEqual([0, 'Nothing is wrong, 1 not checked.\n'])
      expect(json).toContainEqual({
        Subject: 'provider',
        Check: 'key pair',
        Verdict: 'skipped',
        Found: 'not checked here: needs CLIENT_ID and CLIENT_SECRET',
        Mend: 'Set CLIENT_ID and CLIENT_SECRET. token-service reports a rejected client as provider-client.',
      })
      expect(json).toContainEqual(
        expect.objectContaining({ Check: 'token endpoint', Found: 'responds (400)' }),
      )
      expect(provider.requests.at(-1)?.headers).not.toHaveProperty('authorization')
    })
  })

  it.each([
    [problem(404, 'not_found'), 'status 404'],
    [{ body: '<html>' }, 'is not JSON'],
    [
      { body: { issuer: 'x', authorization_endpoint: 'https://x.example' } },
      'no usable token_endpoint',
    ],
  ])(
    'doctor prints a problem with its remedy and exits with code 1 for the discovery response %j',
    async (bad, found) => {
      discoveryResponse = bad
      const { code, out, err } = await doctor()
      expect([code, err]).toEqual([1, '1 problem, 0 warnings.\n'])
      expect(out).toMatch(
        new RegExp(`^problem +provider +discovery +${found}\n +→ Set DISCOVERY_URL`, 'm'),
      )
    },
  )

  it('doctor reports a clock difference of minutes as a problem, and a clock difference of seconds as a warning', async () => {
    const ahead = (seconds: number) => new Date(Date.now() + seconds * 1_000).toUTCString()
    discoveryResponse = { body: document, headers: { Date: ahead(300) } }
    expect(await doctor(['--json'])).toMatchObject({ code: 1, err: '1 problem, 0 warnings.\n' })
    discoveryResponse = { body: document, headers: { Date: ahead(10) } }
    expect(await doctor(['--json'])).toMatchObject({ code: 0, err: '0 problems, 1 warning.\n' })
    expect((await doctor(['--strict'])).code).toBe(1)
  })

  it('with --json, doctor prints each check result as one line of JSON', async () => {
    discoveryResponse = { status: 500 }
    const { json } = await doctor(['--json'])
    expect(json[1]).toEqual({
      Subject: 'provider',
      Check: 'discovery',
      Verdict: 'problem',
      Found: 'status 500',
      Mend: 'Set DISCOVERY_URL to the address of the OpenID discovery document.',
    })
  })

  it('doctor colours the table only on a terminal and only if NO_COLOR is not set', async () => {
    const typed: string[] = []
    expect((await doctor([], { typed })).out).toContain('\u001b[32mok\u001b[39m')
    expect((await doctor([], { typed, env: { NO_COLOR: '1' } })).out).not.toContain('\u001b')
    expect((await doctor()).out).not.toContain('\u001b')
  })

  it('doctor skips the check of a backend if the setting with the address of the backend is missing', async () => {
    const { code, json, err } = await run(
      ['doctor', '--only', 'redis,postgres,rabbitmq', '--json'],
      { env: { DATA_DIR: '/nowhere' } }, // no embedded host has stored data in this folder
    )
    expect([code, err]).toEqual([0, 'Nothing is wrong, 3 not checked.\n'])
    expect(json).toMatchObject(
      ['REDIS_URL', 'DATABASE_URL', 'AMQP_URL'].map((name) => ({
        Verdict: 'skipped',
        Found: `${name} is not set`,
      })),
    )
  })

  it('for an embedded host, doctor requires no addresses of backends, and lists the skipped checks at the end', async () => {
    const dataDir = await mkdtemp(join(tmpdir(), 'doctor-'))
    try {
      await mkdir(join(dataDir, 'secrets'))
      await writeFile(join(dataDir, 'secrets/service_api_key'), 'x'.repeat(40))
      const doctorOf = (env: Record<string, string>) =>
        run(['doctor', '--only', 'redis,postgres,rabbitmq,provider'], {
          env: { DATA_DIR: dataDir, SERVICE_API_KEY: '', ...env },
        })
      const embedded = await doctorOf({ DISCOVERY_URL: `${provider.url}/discovery` })
      expect(embedded.out).toMatch(/^VERDICT.*\nok +provider/)
      expect(embedded.out).toMatch(
        /(?:\nskipped +\w+ +connection +the embedded host has none){3}\n$/,
      )
      expect((await doctorOf({})).out).toMatch(
        /skipped +provider +connection +the embedded host has its own provider settings/,
      )
      expect((await doctorOf({ SERVICE_API_KEY: 'y'.repeat(40) })).out).toContain('Set REDIS_URL.')
    } finally {
      await rm(dataDir, { recursive: true })
    }
  })

  it('doctor names invalid settings without printing their values', async () => {
    const env = { REDIS_URL: 'http://user:secret@x', AMQP_URL: 'nonsense' }
    const { code, err } = await doctor([], { env })
    expect(code).toBe(2)
    expect(err).toMatch(/REDIS_URL: must begin with redis, .*\n.*AMQP_URL: is not a URL/)
    expect(err).not.toMatch(/secret|nonsense/)
  })

  it('doctor does not check the services at their default ports if the address of one service is set', async () => {
    const { code, json } = await run(
      ['doctor', '--only', 'token-service,accounting-gateway,coordinator,demo-api', '--json'],
      { env: { DEMO_API_URL: provider.url } },
    )
    expect(code).toBe(1)
    expect(json).toMatchObject([
      ...['TOKEN_SERVICE_URL', 'GATEWAY_URL', 'COORDINATOR_URL'].map((name) => ({
        Verdict: 'skipped',
        Found: `${name} is not set`,
      })),
      { Subject: 'demo-api', Verdict: 'problem' },
    ])
  })

  it('doctor reports a problem if the server at the address of a service is not that service', async () => {
    const env = { DEMO_API_URL: provider.url }
    const { code, out } = await run(['doctor', '--only', 'demo-api'], { env })
    expect([code, out]).toEqual([1, expect.stringContaining('not a response of demo-api')])
    expect(out).toContain('DEMO_API_URL')
  })

  describe('the requests of doctor to token-service and the coordinator', () => {
    const PROCESSES = 'GET /processes'
    const unresponsive = () => new Promise<FakeResponse>(() => {})
    let service: FakeService
    afterEach(() => service[Symbol.asyncDispose]())

    const start = async (routes: Routes): Promise<void> => {
      service = await startFakeService(
        {
          'GET /health/ready': () => ({ body: { dependencies: {} } }),
          [PROCESSES]: () => ({ body: { items: [], not_loaded: [] } }),
          'GET /integrity': () => ({ body: { violations: {}, deadLetters: {} } }),
          'GET /transactions': () => ({ body: { items: [], next_cursor: null } }),
          'GET /key-check': () => ({
            body: { Checked: 0, Refused: [], next_cursor: null },
          }),
          'GET /audit': () => ({ body: { items: [], head: { Seq: 0, Hash: '' } } }),
          'GET /credentials': () => ({ body: { items: [], next_cursor: null } }),
          ...routes,
        },
        null,
      )
    }
    const examine = (only: string, ...args: readonly string[]) =>
      run(['doctor', '--only', only, '--json', ...args], {
        env: {
          REDIS_URL: 'redis://127.0.0.1:1',
          AMQP_URL: 'amqp://127.0.0.1:1',
          TOKEN_SERVICE_URL: service.url,
          COORDINATOR_URL: service.url,
        },
      })
    const routes = () => service.requests.map(({ route }) => route)

    it('doctor sends no request to the coordinator for the check of Redis', async () => {
      await start({})
      await examine('redis')
      expect(routes()).toEqual([])
    })

    it('doctor requests the list of processes only once for the checks of RabbitMQ and of the coordinator', async () => {
      await start({})
      expect((await examine('rabbitmq,coordinator')).json).toContainEqual(
        expect.objectContaining({ Subject: 'coordinator', Check: 'runs', Verdict: 'ok' }),
      )
      expect(routes().filter((route) => route === PROCESSES)).toHaveLength(1)
    })

    it('doctor requests /integrity and /transactions of the coordinator at the same time', async () => {
      const requested = { integrity: Promise.withResolvers(), runs: Promise.withResolvers() }
      await start({
        'GET /integrity': async () => {
          requested.integrity.resolve(null)
          await requested.runs.promise
          return { body: { violations: {}, deadLetters: {} } }
        },
        'GET /transactions': async () => {
          requested.runs.resolve(null)
          await requested.integrity.promise
          return { body: { items: [], next_cursor: null } }
        },
      })
      const { json } = await examine('coordinator')
      for (const Check of ['integrity', 'runs'])
        expect(json).toContainEqual(expect.objectContaining({ Check, Verdict: 'ok' }))
    })

    it('doctor checks the credentials even if reading the audit log takes more than half of the time limit', async () => {
      await start({ 'GET /audit': unresponsive })
      const { json } = await examine('token-service', '--timeout', '2')
      expect(json).toContainEqual(expect.objectContaining({ Check: 'companies', Verdict: 'ok' }))
      expect(json).toContainEqual(
        expect.objectContaining({ Check: '/audit', Found: 'no response in time' }),
      )
    })

    it('doctor reports why it could not read the audit log', async () => {
      await start({ 'GET /audit': () => problem(503, 'store_unavailable') })
      const { json } = await examine('token-service')
      expect(json).toContainEqual(
        expect.objectContaining({
          Check: '/audit',
          Found: 'store_unavailable (store_unavailable)',
        }),
      )
    })

    it('doctor reports a rejected service key only once, although several requests are rejected', async () => {
      const rejected = () => problem(401, 'unauthorized')
      await start({
        'GET /audit': rejected,
        'GET /credentials': rejected,
        'GET /key-check': rejected,
      })
      const { json } = await examine('token-service')
      expect(json.filter((line) => (line as { Check: string }).Check === 'service key')).toEqual([
        expect.objectContaining({ Verdict: 'problem', Found: 'rejected' }),
      ])
    })
  })
})
