import { randomBytes } from 'node:crypto'
import postgres from 'postgres'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ask, companyInfoUrl, connectCompany, runOf } from '../support/story-steps.ts'
import { serviceNames, startSystem, type System } from '../support/system.ts'
import { startTraceCollector, type TraceCollector, treeOf } from '../support/trace-collector.ts'

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
  it('goes from /queue through RabbitMQ and Postgres to each step and the call that it makes', async () => {
    await ask(system, '/queue?number=66')
    await runOf(system, '66', 0, 'Completed')
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

  it('begins anew with a message that a pull sends: where the run came from is not kept', async () => {
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

  it('says which attempt of which step of which run a span is about, and what came of it', async () => {
    await ask(system, '/queue?number=67')
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
  it('says so by the class of the error, without its words', async () => {
    await system.call(`${system.url('coordinator')}/processes/OrderProcess/transactions`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ TransactionID: 'too-long', InitialData: 'x'.repeat(2_000) }),
    })
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
  /** Reads the company as a caller that is traced itself, and waits for the tree below its span. */
  async function expectTree(expected: readonly string[]): Promise<void> {
    const caller = randomBytes(8).toString('hex')
    const traceparent = `00-${randomBytes(16).toString('hex')}-${caller}-01`
    const answer = await system.call(companyInfoUrl(system, REALM), { headers: { traceparent } })
    expect(answer.status).toBe(200)
    await eventually(() => expect(treeOf(collector.spans, caller)).toEqual(expected))
  }

  it('goes through the hand-out of the token to the provider', async () => {
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

  it('goes through the refresh when the provider does not take the token any more', async () => {
    const expiry = `${system.url('sandbox-provider')}/sandbox/realms/${REALM}/expire`
    expect((await fetch(expiry, { method: 'POST' })).status).toBe(200)
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

describe('tracing', () => {
  it('tells nothing of a query, and only what its attributes name', () => {
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

  // Hooks see each module, however it is loaded. The API without the SDK comes with the metrics.
  const tellModules = `--import=data:text/javascript,${encodeURIComponent(
    `import { registerHooks } from 'node:module'
    registerHooks({
      load(url, context, next) {
        if (/node_modules\\/@opentelemetry\\/(?!api\\/)/.test(url)) process.stdout.write('loads the SDK\\n')
        return next(url, context)
      },
    })`,
  )}`

  it.each(serviceNames)('loads nothing in %s while no endpoint is set', async (name) => {
    const untraced = await system.replica(name, { NODE_OPTIONS: tellModules })
    expect(untraced.output()).not.toContain('loads the SDK')
    await untraced.stop('SIGKILL')
  })

  it.each([
    ['loads the SDK where there is one', {}, true],
    ['loads nothing with OTEL_SDK_DISABLED', { OTEL_SDK_DISABLED: 'true' }, false],
  ])('%s', async (_, switches, isLoaded) => {
    const env = { ...collector.env, ...switches, NODE_OPTIONS: tellModules }
    const replica = await system.replica('demo-api', env)
    expect(replica.output().includes('loads the SDK')).toBe(isLoaded)
    await replica.stop('SIGKILL')
  })

  it('tells that the collector is away, and does not hold up a service that leaves then', async () => {
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

  it('sends what it has when a service leaves', async () => {
    const replica = await system.replica('demo-api', {
      ...collector.env,
      OTEL_BSP_SCHEDULE_DELAY: '60000',
      OTEL_SERVICE_NAME: 'leaving',
    })
    await (await fetch(`${replica.url}/queue?number=69`)).body?.cancel()
    expect(await replica.stop('SIGTERM')).toBe(0)
    expect(collector.spans).toContainEqual(
      expect.objectContaining({ service: 'leaving', name: 'GET /queue' }),
    )
  })
})
