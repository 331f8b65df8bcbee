import { randomBytes } from 'node:crypto'
import { START_EXCHANGE } from '@integration-host/shared/contracts/topology'
import { connect } from 'amqplib'
import postgres from 'postgres'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  requestDemoApi,
  companyInfoUrl,
  connectCompany,
  waitForRun,
} from '../support/clients/user-actions.ts'
import { backend, serviceNames, startSystem, type System } from '../support/system.ts'
import {
  startTraceCollector,
  type TraceCollector,
  treeOf,
} from '../support/fakes/trace-collector.ts'

const REALM = '9341453908059889'

const opened = new AsyncDisposableStack()
let collector: TraceCollector
let system: System
beforeAll(async () => {
  collector = opened.use(await startTraceCollector())
  system = opened.use(await startSystem([]))
  for (const name of serviceNames) system.start(name, collector.env)
  await system.ready(...serviceNames)
})
afterAll(() => opened.disposeAsync())

describe('the trace of an order', () => {
  it('the trace of an order contains its request, its messages, the SQL statements, and each step with its HTTP call', async () => {
    await requestDemoApi(system, '/queue?number=66')
    await waitForRun(system, '66', 0, 'Completed')
    await eventually(() => {
      const queued = collector.spans.find(({ name }) => name === 'GET /queue')
      const trace = collector.spans.filter(({ traceId }) => traceId === queued?.traceId)
      expect(treeOf(trace, '')).toEqual([
        'demo-api: GET /queue',
        '  demo-api: POST',
        '    coordinator: POST /processes/:process/transactions',
        '      coordinator: postgresql queue',
        '      coordinator: publish steps.OrderProcess.order',
        '        coordinator: process steps.OrderProcess.order',
        '          coordinator: postgresql claim',
        '          coordinator: step order',
        '            coordinator: GET',
        '              demo-api: GET /order',
        '            coordinator: postgresql record',
        '            coordinator: publish steps.OrderProcess.report',
        '              coordinator: process steps.OrderProcess.report',
        '                coordinator: postgresql claim',
        '                coordinator: step report',
        '                  coordinator: GET',
        '                    demo-api: GET /report',
        '                  coordinator: postgresql record',
        '                  coordinator: publish steps.OrderProcess.csv',
        '                    coordinator: process steps.OrderProcess.csv',
        '                      coordinator: postgresql claim',
        '                      coordinator: step csv',
        '                        coordinator: postgresql record',
      ])
    })
  })

  it('if a message with a trace starts a run, the run continues this trace', async () => {
    const connection = await connect(backend('TEST_AMQP_URL'))
    const channel = await connection.createConfirmChannel()
    const traces = ['1', '2', '3'].map((id) => ({ id, traceId: randomBytes(16).toString('hex') }))
    for (const { id, traceId } of traces)
      channel.publish(
        system.amqpPrefix + START_EXCHANGE,
        'OrderProcess',
        Buffer.from(JSON.stringify({ InitialData: id })),
        {
          messageId: `traced-${id}`,
          headers: { traceparent: `00-${traceId}-${randomBytes(8).toString('hex')}-01` },
        },
      )
    await channel.waitForConfirms()
    await connection.close()
    await eventually(() => {
      for (const { traceId } of traces) {
        const trace = collector.spans.filter((span) => span.traceId === traceId)
        expect(trace.map(({ name }) => name)).toEqual(
          expect.arrayContaining([
            'process start.OrderProcess',
            'postgresql queue',
            'publish steps.OrderProcess.order',
            'process steps.OrderProcess.order',
            'step csv',
          ]),
        )
        expect(trace.filter(({ name }) => name === 'step order')).toHaveLength(1)
      }
    })
  })

  it("the trace of a run that was inserted with SQL begins with the sweeper's message", async () => {
    const sql = postgres(system.databaseUrl, { max: 1 })
    await sql`insert into "Order_Header" ("Process", "TransactionID", "InitialData")
      values ('OrderProcess', 'by-hand', '"by-hand"')`
    await sql.end()
    await eventually(() => {
      const sent = treeOf(collector.spans, '').indexOf(
        'coordinator: publish steps.OrderProcess.order',
      )
      expect(treeOf(collector.spans, '').slice(sent, sent + 4)).toEqual([
        'coordinator: publish steps.OrderProcess.order',
        '  coordinator: process steps.OrderProcess.order',
        '    coordinator: postgresql claim',
        '    coordinator: step order',
      ])
    })
  })

  it('a step span has attributes for process, run, step, attempt and outcome', async () => {
    await requestDemoApi(system, '/queue?number=67')
    await eventually(() =>
      expect(collector.spans.map(({ attributes }) => attributes)).toContainEqual({
        'integration.process': 'OrderProcess',
        'integration.transaction_id': '67',
        'integration.replay_id': 0,
        'integration.step': 'order',
        'integration.attempt': 1,
        'integration.outcome': 'completed',
      }),
    )
  })
})

describe('the trace of a step that fails', () => {
  it('the span of a failed step has the error class but not the error message', async () => {
    await system.call(
      `${system.url('coordinator')}/processes/OrderProcess/transactions`,
      postJson({ TransactionID: 'too-long', InitialData: 'x'.repeat(2_000) }),
    )
    await eventually(() => {
      const step = collector.spans.find(
        ({ attributes }) => attributes['integration.transaction_id'] === 'too-long',
      )
      expect(step).toMatchObject({ name: 'step order', isFailed: true })
      expect(step?.attributes).toMatchObject({
        'integration.outcome': 'failed',
        'error.type': 'http_400',
      })
    })
  })
})

describe('the trace of a call to the accounting API', () => {
  /** Reads the company with a traceparent header, and waits until all spans of this trace have arrived. */
  async function expectTree(expected: readonly string[]): Promise<void> {
    const caller = randomBytes(8).toString('hex')
    const traceparent = `00-${randomBytes(16).toString('hex')}-${caller}-01`
    const response = await system.call(companyInfoUrl(system, REALM), { headers: { traceparent } })
    expect(response.status).toBe(200)
    await eventually(() => expect(treeOf(collector.spans, caller)).toEqual(expected))
  }

  it('the trace of a gateway call contains the token request and the call to the provider', async () => {
    await connectCompany(system, REALM)
    await expectTree([
      'accounting-gateway: GET /v3/company/:realm/*',
      '  accounting-gateway: GET',
      '    sandbox-provider: GET /v3/*',
      '  accounting-gateway: GET',
      '    token-service: GET /credentials/:name/token',
      '      token-service: redis get',
    ])
  })

  it('the trace of a gateway call contains the refresh if the provider rejects the access token', async () => {
    const expiry = `${system.url('sandbox-provider')}/sandbox/realms/${REALM}/expire`
    const headers = { 'Content-Type': 'application/json' }
    expect((await fetch(expiry, { method: 'POST', headers })).status).toBe(200)
    await expectTree([
      'accounting-gateway: GET /v3/company/:realm/*',
      '  accounting-gateway: GET',
      '    sandbox-provider: GET /v3/*',
      '  accounting-gateway: GET',
      '    token-service: GET /credentials/:name/token',
      '      token-service: redis get',
      '  accounting-gateway: GET (failed)',
      '    sandbox-provider: GET /v3/*',
      '  accounting-gateway: POST',
      '    token-service: POST /credentials/:name/refresh',
      '      token-service: redis get',
      '      token-service: refresh',
      '        token-service: POST',
      '          sandbox-provider: POST /oauth2/v1/tokens/bearer',
      '        token-service: redis acquire',
      '        token-service: redis commit',
      '        token-service: redis recordIntent',
    ])
  })
})

describe('the traces of a running system', () => {
  it('exported spans contain only the expected attributes and no query string', () => {
    const keys = new Set(collector.spans.flatMap(({ attributes }) => Object.keys(attributes)))
    expect([...keys].toSorted()).toEqual([
      'db.operation.name',
      'db.system.name',
      'error.type',
      'http.request.method',
      'http.response.status_code',
      'http.route',
      'integration.attempt',
      'integration.outcome',
      'integration.process',
      'integration.replay_id',
      'integration.step',
      'integration.transaction_id',
      'messaging.destination.name',
      'messaging.operation.name',
      'messaging.system',
      'server.address',
      'server.port',
      'url.full',
    ])
    expect(collector.received().toString()).not.toMatch(/CompanyInfo|number=66/)
  })

  // This load hook runs for every module that the service imports or requires. OpenTelemetry's API package is always
  // loaded, so the hook reports only the other packages of OpenTelemetry, which belong to the SDK.
  const reportSdk = `--import=data:text/javascript,${encodeURIComponent(
    `import { registerHooks } from 'node:module'
    registerHooks({
      load(url, context, next) {
        if (/node_modules\\/@opentelemetry\\/(?!api\\/)/.test(url)) process.stdout.write('loads the SDK\\n')
        return next(url, context)
      },
    })`,
  )}`

  it.each(serviceNames)(
    '%s does not load the OpenTelemetry SDK if no OTLP endpoint is set',
    async (name) => {
      const untraced = await system.replica(name, { NODE_OPTIONS: reportSdk })
      expect(untraced.output()).not.toContain('loads the SDK')
      await untraced.stop('SIGKILL')
    },
  )

  it.each([
    ['loads the OpenTelemetry SDK if an OTLP endpoint is set', {}, true],
    [
      'does not load the OpenTelemetry SDK if OTEL_SDK_DISABLED is set',
      { OTEL_SDK_DISABLED: 'true' },
      false,
    ],
  ])('depending on its OTEL variables, a service %s', async (_, switches, isLoaded) => {
    const env = { ...collector.env, ...switches, NODE_OPTIONS: reportSdk }
    const replica = await system.replica('demo-api', env)
    expect(replica.output().includes('loads the SDK')).toBe(isLoaded)
    await replica.stop('SIGKILL')
  })

  it('a service logs that the trace collector is unavailable, and shuts down without delay', async () => {
    const replica = await system.replica('demo-api', {
      ...collector.env,
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1',
      OTEL_EXPORTER_OTLP_TIMEOUT: '500',
    })
    await (await fetch(`${replica.url}/queue?number=68`)).body?.cancel()
    await eventually(() =>
      expect(replica.output()).toContain(
        '"reason":"connect ECONNREFUSED 127.0.0.1:1","msg":"traces are not delivered',
      ),
    )
    await (await fetch(`${replica.url}/queue?number=68`)).body?.cancel()
    expect(await replica.stop('SIGTERM')).toBe(0)
  })

  it('a service exports its remaining spans on shutdown', async () => {
    const replica = await system.replica('demo-api', {
      ...collector.env,
      OTEL_BSP_SCHEDULE_DELAY: '60000',
      OTEL_SERVICE_NAME: 'shutting-down',
    })
    await (await fetch(`${replica.url}/queue?number=69`)).body?.cancel()
    expect(await replica.stop('SIGTERM')).toBe(0)
    expect(collector.spans).toContainEqual(
      expect.objectContaining({ service: 'shutting-down', name: 'GET /queue' }),
    )
  })
})
