import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { digestOf } from '@integration-host/shared/access/key-list'
import {
  ReplayTransaction,
  RunDetailResponse,
  RunResponse,
} from '@integration-host/shared/contracts/run'
import { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { until } from '@integration-host/shared/test-support/eventually'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import {
  type Child,
  type Client,
  type ClientOptions,
  createClient,
  hasProblem,
  ProblemError,
} from 'integration-host/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Host, hostReady, startHost } from './host.ts'
import { COMPANY, connectCompany } from './story.ts'

const PROCESS = 'Sale'
const source = `import { defineProcess, z } from 'integration-host'
  export default defineProcess('${PROCESS}', { input: z.object({ customer: z.string() }) })
    .step('one', (step) =>
      step.initialData.customer === 'unknown' ? step.fail('no such customer') : step.complete())
    .step('two', (step) => step.complete({ sold: step.initialData.customer }), { undo: (step) => step.complete() })`
const parent = `import { defineProcess } from 'integration-host'
  import sale from './sale.ts'
  export default defineProcess('Sales').forEach('all', sale, {
    tolerate: 1,
    items: () => Array.from({ length: 250 }, (_, n) => ({
      id: n,
      data: { customer: n === 66 ? 'unknown' : 'Ada' },
    })),
  })`
const bill = `import { defineProcess, z } from 'integration-host'
  export default defineProcess('Bill')
    .event('approved', { data: z.object({ approved: z.boolean() }), ask: () => ({ title: 'Pay?' }) })
    .step('pay', (step) => step.complete(step.previous.data))`
const COMPANY_KEY = 'company-'.padEnd(40, 'x')

/** A request that the client has sent. */
interface Sent {
  readonly method: string
  readonly url: URL
  readonly headers: Headers
  readonly signal: AbortSignal | null | undefined
  /** The status of the response; `null` until it arrives. */
  status: number | null
}

describe('the HTTP client that the package exports', () => {
  let host: Host
  let folder: string
  /** All requests of this client. */
  const everySent: Sent[] = []

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'client-'))
    await mkdir(join(folder, 'processes'))
    await writeFile(join(folder, 'processes/sale.ts'), source)
    await writeFile(join(folder, 'processes/sales.ts'), parent)
    await writeFile(join(folder, 'processes/bill.ts'), bill)
    const keys = [
      {
        id: 'company',
        sha256: digestOf(COMPANY_KEY),
        scopes: ['transactions:queue', 'transactions:read'],
        realms: [COMPANY.realm],
        processes: ['*'],
      },
    ]
    await writeFile(join(folder, 'keys.json'), JSON.stringify(keys))
    host = await startHost({
      dataDir: join(folder, 'data'),
      ports: 'free',
      env: {
        PROCESSES: join(folder, 'processes'),
        SERVICE_KEYS_FILE: join(folder, 'keys.json'),
      },
      logLevel: 'silent',
      logTo: { write() {} },
    })
    await hostReady(host)
    await connectCompany(host, { stage() {}, line() {} })
  })
  afterAll(async () => {
    await host[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })

  /** Returns a client, and the requests that it has sent. `before` is called before each request. */
  function connect(
    options: Partial<ClientOptions> = {},
    before: (sent: Sent) => unknown = () => {},
  ): {
    readonly client: Client
    readonly sent: readonly Sent[]
    readonly streams: () => readonly Sent[]
    readonly reads: () => readonly Sent[]
  } {
    const sent: Sent[] = []
    const client = createClient({
      coordinator: host.coordinator,
      gateway: host.accountingGateway,
      key: host.serviceKey,
      pauseMs: 1,
      pollMs: 10,
      async fetch(input, init = {}) {
        const one: Sent = {
          method: init.method ?? 'GET',
          url: new URL(input instanceof Request ? input.url : input),
          headers: new Headers(init.headers),
          signal: init.signal,
          status: null,
        }
        sent.push(one)
        everySent.push(one)
        await before(one)
        const response = await fetch(input, init)
        one.status = response.status
        return response
      },
      ...options,
    })
    const isStream = ({ url }: Sent): boolean => url.pathname === '/events'
    return {
      client,
      sent,
      streams: () => sent.filter(isStream),
      reads: () => sent.filter((one) => one.method === 'GET' && !isStream(one)),
    }
  }
  /** Pauses or resumes the process. No step starts while its process is paused. */
  async function setProcess(action: 'pause' | 'resume'): Promise<void> {
    const response = await fetch(`${host.coordinator}/processes/${PROCESS}/${action}`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${host.serviceKey}` },
    })
    expect(response.status).toBeLessThan(300)
  }
  const problemOf = (promise: Promise<unknown>): Promise<unknown> =>
    promise.then(
      () => null,
      (error: unknown) => (error instanceof ProblemError ? error.problem : error),
    )

  it('a transaction that the client sends twice is queued only once, and completed() returns the run with its results', async () => {
    const process = connect().client.process<{ customer: string }>(PROCESS)
    const options = { realm: COMPANY.realm, tags: { channel: 'shop' }, reason: 'by hand' }
    const queued = await process.queue('q1', { customer: 'Ada' }, options)
    expect(queued).toMatchObject({ TransactionID: 'q1', Tags: { channel: 'shop' } })
    expect(await process.queue('q1', { customer: 'Ada' }, options)).toMatchObject({ ReplayID: 0 })
    const run = await process.run('q1').completed()
    expect(run.Items.map(({ StepName, Data }) => [StepName, Data])).toEqual([
      ['one', null],
      ['two', { sold: 'Ada' }],
    ])
  })

  it('a transaction that the client queues with waitSeconds resolves with the status at the end of the run, in one request', async () => {
    const { client, sent } = connect()
    const process = client.process<{ customer: string }>(PROCESS)
    const options = { waitSeconds: 30 }
    expect(await process.queue('w1', { customer: 'Ada' }, options)).toMatchObject({
      Status: 'Completed',
    })
    expect(await process.queue('w2', { customer: 'unknown' }, options)).toMatchObject({
      Status: 'Failed',
      LastError: 'no such customer',
    })
    expect(sent.map(({ method, status }) => [method, status])).toEqual([
      ['POST', 200],
      ['POST', 200],
    ])
  })

  it('a transaction that the client queues with a priority has it, and so has its replay', async () => {
    const process = connect().client.process<{ customer: string }>(PROCESS)
    const options = { priority: 'high', waitSeconds: 30 } as const
    expect(await process.queue('p1', { customer: 'Ada' }, options)).toMatchObject({
      Priority: 'high',
    })
    expect(await process.run('p1').replay()).toMatchObject({ ReplayID: 1, Priority: 'high' })
  })

  it('the client counts the children of a run, reads them in the order of the list, and names their parent', async () => {
    const { client, sent } = connect()
    const sales = client.process<null>('Sales')
    await sales.queue('c1', null)
    const run = sales.run('c1')
    expect((await run.completed()).Children).toMatchObject([
      { Place: 'all', Process: PROCESS, Total: 250, Completed: 249, Failed: 1, Active: 0 },
    ])
    const pagesBefore = sent.length
    const items: string[] = []
    for await (const { ItemID } of run.children({ status: ['Completed', 'Failed'] }))
      items.push(ItemID)
    expect(items).toEqual(Array.from({ length: 250 }, (_, n) => `${n}`))
    expect(sent.slice(pagesBefore)).toHaveLength(2)
    const failed: Child[] = []
    for await (const child of run.children({ place: 'all', status: 'Failed' })) failed.push(child)
    expect(failed).toMatchObject([{ ItemID: '66', LastError: 'no such customer' }])
    const child = client.process(PROCESS).run(failed[0]?.TransactionID ?? '')
    expect(await child.get()).toMatchObject({
      Status: 'Failed',
      Parent: { Process: 'Sales', TransactionID: 'c1', ReplayID: 0, Place: 'all' },
    })
  })

  it('a transaction that the client queues with notBefore starts at that time', async () => {
    const process = connect().client.process<{ customer: string }>(PROCESS)
    const queued = await process.queue('delayed', { customer: 'Ada' }, { notBefore: 3_600 })
    expect(Date.parse(queued.NotBefore ?? '') - Date.parse(queued.CreatedAt)).toBe(3_600_000)
    await process.run('delayed').cancel()
  })

  it('all calls of completed() share one event stream, and read a run again only if the run may have ended', async () => {
    const { client, streams, reads } = connect()
    const process = client.process(PROCESS)
    await setProcess('pause')
    await process.queue('e1', { customer: 'Ada' })
    await process.queue('e2', { customer: 'Bob' })
    const ended = Promise.all([process.run('e1').completed(), process.run('e2').completed()])
    // Each run is read once immediately and once when the stream has been opened.
    await until(() => reads().length === 4 && reads().every(({ status }) => status === 200))
    await setProcess('resume')
    expect(await ended).toMatchObject([{ Status: 'Completed' }, { Status: 'Completed' }])
    expect(streams()).toMatchObject([{ status: 200 }])
    expect(reads()).toHaveLength(6)
    expect(streams()[0]?.signal?.aborted).toBe(true)
  })

  it('the client resumes a broken event stream, and requests only the run that ended in the meantime', async () => {
    await using relay = await startRelay(host.coordinator, 80)
    const reopened = Promise.withResolvers<void>()
    const released = Promise.withResolvers<void>()
    const { client, streams, reads } = connect({ coordinator: relay.url }, async ({ headers }) => {
      if (!headers.has('Last-Event-ID')) return
      reopened.resolve()
      await released.promise
    })
    const process = client.process(PROCESS)
    const direct = connect().client.process(PROCESS)
    await setProcess('pause')
    await process.queue('r1', { customer: 'Ada' })
    await process.queue('r2', { customer: 'Bob' })
    const ended = process.run('r1').completed()
    const other = problemOf(process.run('r2').completed())
    await until(() => reads().length === 4 && reads().every(({ status }) => status === 200))
    await direct.run('r2').cancel()
    expect(await other).toMatchObject({ code: 'run_cancelled' })
    const before = reads().length

    relay.cut()
    await reopened.promise
    await setProcess('resume')
    await direct.run('r1').completed()
    expect(reads()).toHaveLength(before)
    released.resolve()
    expect(await ended).toMatchObject({ Status: 'Completed' })
    expect(reads()).toHaveLength(before + 1)
    expect(streams()).toHaveLength(2)
  })

  it('completed() polls the run if the coordinator rejects the request for the event stream', async () => {
    const { client, streams, reads } = connect({ key: COMPANY_KEY })
    const process = client.process(PROCESS)
    await setProcess('pause')
    await process.queue('f1', { customer: 'Ada' }, { realm: COMPANY.realm })
    const ended = process.run('f1').completed()
    await until(() => reads().length > 4)
    await setProcess('resume')
    expect(await ended).toMatchObject({ Status: 'Completed' })
    expect(streams()).toMatchObject([{ status: 403 }])
  })

  it('completed() waits while the coordinator is unavailable', async () => {
    await using relay = await startRelay(host.coordinator, 80)
    const { client, sent } = connect({ coordinator: relay.url })
    await connect().client.process(PROCESS).queue('u1', { customer: 'Ada' })
    relay.away()
    const ended = client.process(PROCESS).run('u1').completed()
    await until(() => sent.length > 8)
    relay.restore()
    expect(await ended).toMatchObject({ Status: 'Completed' })
  })

  it('completed() stops waiting and closes the event stream when its signal is aborted', async () => {
    const { client, streams } = connect()
    await setProcess('pause')
    await client.process(PROCESS).queue('a1', { customer: 'Ada' })
    const stop = new AbortController()
    const ended = client.process(PROCESS).run('a1').completed({ signal: stop.signal })
    await until(() => streams()[0]?.status === 200)
    stop.abort(new Error('enough'))
    await expect(ended).rejects.toThrow('enough')
    expect(streams()[0]?.signal?.aborted).toBe(true)
    await setProcess('resume')
  })

  it('the client replays, resumes and cancels a run', async () => {
    const process = connect().client.process<{ customer: string }>(PROCESS)
    await process.queue('x1', { customer: 'unknown' })
    const run = process.run('x1')
    const failed = await run.completed().catch((error: unknown) => error)
    expect(hasProblem(failed, 'run_failed') && failed.problem.run.StepName).toBe('one')
    expect(await run.resume({ reason: 'again' })).toMatchObject({ ReplayID: 0 })
    expect(await problemOf(run.completed())).toMatchObject({ code: 'run_failed' })
    expect(await run.replay({ initialData: { customer: 'Ada' } })).toMatchObject({ ReplayID: 1 })
    expect(await run.completed()).toMatchObject({ ReplayID: 1, InputChanged: true })
    expect(await run.replay({ fromStep: 'two' })).toMatchObject({ ReplayID: 2 })
    expect(await run.completed()).toMatchObject({ ReplayID: 2 })
    expect(await process.run('x1', { replay: 0 }).get()).toMatchObject({ Status: 'Failed' })
    expect(await problemOf(run.cancel())).toMatchObject({ code: 'transaction_not_active' })
  })

  it('signal() sends an event to a run, and link() returns the address at which a person decides', async () => {
    const process = connect().client.process('Bill')
    await process.queue('b1', null)
    const run = process.run('b1')
    const link = await run.link('approved', { for: 'ada@example.com', expiresInSeconds: 60 })
    const page = await fetch(link.Url)
    expect([page.status, Date.parse(link.ExpiresAt) > Date.now()]).toEqual([200, true])
    const data = { approved: true }
    const sent = await run.signal('approved', data, { eventId: 'e1', reason: 'agreed' })
    expect(sent.Item).toMatchObject({ Data: data, Sender: { EventID: 'e1', Reason: 'agreed' } })
    // The same event may be sent again, also by a caller that does not know its id.
    expect((await run.signal('approved', data)).Item).toMatchObject({ Sender: sent.Item.Sender })
    const other = await run.signal('approved', { approved: false }).catch((error: unknown) => error)
    expect(hasProblem(other, 'event_already_received') && other.problem.Item).toMatchObject({
      Data: data,
    })
    expect(await run.completed()).toMatchObject({ Items: [{ Data: data }, { Data: data }] })
    expect(await problemOf(run.signal('other'))).toMatchObject({ code: 'event_not_found' })
    expect(await problemOf(run.link('other', { for: 'ada' }))).toMatchObject({
      code: 'event_not_found',
    })
  })

  it('a failed call rejects with the problem in the response, or with a problem of the client if the response has none', async () => {
    const { client } = connect()
    const process = client.process(PROCESS)
    await process.queue('p1', { customer: 'Ada' })
    const runOf = (options: Partial<ClientOptions>) =>
      connect(options).client.process(PROCESS).run('p1')
    const otherServer = { fetch: async () => new Response('<html>') }
    const problems = [
      [() => process.queue('p1', { customer: 'Bob' }), { code: 'transaction_conflict' }],
      [
        () => process.queue('p2', { customer: 66 }),
        { code: 'input_invalid', status: 400, errors: [expect.stringContaining('customer')] },
      ],
      [() => process.run('gone').completed(), { code: 'transaction_not_found', status: 404 }],
      [() => client.process('Gone').run('p1').completed(), { code: 'process_not_found' }],
      [() => runOf({ key: 'wrong'.padEnd(40, 'x') }).completed(), { code: 'unauthorized' }],
      [() => runOf(otherServer).get(), { code: 'response_unexpected', status: 200 }],
    ] as const
    for (const [call, problem] of problems) expect(await problemOf(call())).toMatchObject(problem)
  })

  it('if no response arrives, the client repeats reads and new transactions, but never an action on a run', async () => {
    await using relay = await startRelay(host.coordinator, 80)
    relay.away()
    const { client, sent } = connect({ coordinator: relay.url })
    const process = client.process(PROCESS)
    const calls = [
      [() => process.run('n1').get(), 3],
      [() => process.queue('n1', { customer: 'Ada' }), 3],
      [() => process.run('n1').cancel(), 1],
    ] as const
    for (const [call, times] of calls) {
      const before = sent.length
      expect(await problemOf(call())).toMatchObject({ code: 'connection_failed' })
      expect(sent.length - before).toBe(times)
    }
  })

  describe('the client of a company', () => {
    const invoice = (name: string): RequestInit => ({
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
      body: JSON.stringify({ DisplayName: name }),
    })
    const entitiesCreated = async (): Promise<number> => {
      const response = await fetch(`${host.sandboxProvider}/sandbox/counters`)
      const { realms } = (await response.json()) as {
        realms: Record<string, { entitiesCreated: number }>
      }
      return realms[COMPANY.realm]?.entitiesCreated ?? 0
    }
    /** Closes the connection instead of sending the next response. */
    const loseNextResponse = (relay: Relay): void => {
      relay.edit = () => {
        relay.edit = null
        relay.cut()
        return Buffer.alloc(0)
      }
    }

    it('undo() takes back the steps of a run, and completed() is rejected with the run that was undone', async () => {
      const run = connect().client.process<{ customer: string }>(PROCESS)
      await run.queue('undone', { customer: 'Ada' })
      await run.run('undone').completed()
      expect(await run.run('undone').undo({ reason: 'by mistake' })).toMatchObject({
        TransactionID: 'undone',
        Status: 'Undoing',
      })
      const ended = await run
        .run('undone')
        .completed()
        .catch((error: unknown) => error)
      expect(hasProblem(ended, 'run_failed') && ended.problem.run).toMatchObject({
        Status: 'Undone',
        Items: [{ Status: 'Completed' }, { Status: 'Undone' }],
      })
      expect(await problemOf(run.run('undone').resume())).toMatchObject({
        code: 'transaction_not_resumable',
      })
    })

    it('pauses a company, whose runs wait, and resumes it', async () => {
      const { client } = connect()
      const { realm } = COMPANY
      const pause = { Realm: realm, Paused: true, Reason: 'month end' }
      expect(await client.pauseCompany(realm, { reason: 'month end' })).toMatchObject(pause)
      const sale = client.process<{ customer: string }>(PROCESS)
      await sale.queue('paused', { customer: 'Ada' }, { realm })
      await until(async () => (await sale.run('paused').get()).WaitingFor === `paused:${realm}`)
      expect(await client.resumeCompany(realm)).toMatchObject({ Paused: false })
      await sale.run('paused').completed()
    })

    it('the client of a company calls the accounting API, and returns each response whatever its status', async () => {
      const company = connect().client.company(COMPANY.realm)
      const read = await company.fetch(`/companyinfo/${COMPANY.realm}`, {
        headers: { Accept: 'application/json' },
      })
      expect([read.status, await read.json()]).toMatchObject([200, { CompanyInfo: {} }])
      expect((await company.fetch('/customer', { method: 'POST', body: '{' })).status).toBe(400)
    })

    it('if the response to a POST was lost, the client repeats the POST without creating a second entity', async () => {
      await using relay = await startRelay(host.accountingGateway, 80)
      const { client, sent } = connect({ gateway: relay.url, provider: 'intuit' })
      const before = await entitiesCreated()
      loseNextResponse(relay)
      const response = await client
        .company(COMPANY.realm)
        .fetch('/customer?minorversion=75', invoice('lost'))
      expect(response.status).toBe(200)
      expect(response.headers.get('X-RequestId')).toMatch(/^[0-9a-f]{32}$/)
      const keys = sent.map(({ headers }) => headers.get('Idempotency-Key'))
      expect(keys).toEqual([expect.stringMatching(/./), keys[0]])
      expect(await entitiesCreated()).toBe(before + 1)
    })

    it('the client repeats a POST without a response only if an earlier response showed that the provider recognises repeated requests', async () => {
      await using relay = await startRelay(host.accountingGateway, 80)
      const { client, sent } = connect({ gateway: relay.url })
      const company = client.company(COMPANY.realm)
      loseNextResponse(relay)
      expect(await problemOf(company.fetch('/customer', invoice('first')))).toMatchObject({
        code: 'connection_failed',
        idempotencyKey: sent[0]?.headers.get('Idempotency-Key'),
      })
      expect(sent).toHaveLength(1)
      expect((await company.fetch('/customer', invoice('second'))).status).toBe(200)
      loseNextResponse(relay)
      expect((await company.fetch('/customer', invoice('third'))).status).toBe(200)
      expect(sent).toHaveLength(4)
    })

    it('the client of a company reports the problem in a response of the gateway, and rejects a path that leaves the company', async () => {
      const { client, sent } = connect()
      const unknown = client.company('9999')
      expect(await problemOf(unknown.fetch('/companyinfo/9999'))).toMatchObject({
        code: 'credential_not_found',
      })
      const before = sent.length
      for (const path of ['../1/invoice', '/..%2f/../../1/invoice', '/%2e%2e/1/invoice', '..'])
        await expect(unknown.fetch(path)).rejects.toThrow('the path leaves the company')
      expect(sent).toHaveLength(before)
    })
  })

  it('createClient() rejects an invalid key or address with an error that does not contain the value', () => {
    const messageOf = (options: Partial<ClientOptions>): string => {
      try {
        connect(options)
        return 'nothing was thrown'
      } catch (error) {
        return String(error)
      }
    }
    expect(
      [
        { key: 'secret\nkey' },
        { coordinator: 'http://user:secret@127.0.0.1' },
        { gateway: 'secret' },
      ].map(messageOf),
    ).toEqual([
      'TypeError: key is not a service key',
      'TypeError: coordinator must be an http(s) address without credentials',
      'TypeError: gateway must be an http(s) address without credentials',
    ])
    expect(() => connect().client.process('..').run('1')).toThrow('must not be')
  })

  it('the OpenAPI document describes every request of the client, and the schemas match the types of the client', async () => {
    const response = await fetch(`${host.coordinator}/openapi.json`)
    const { paths, components } = (await response.json()) as {
      paths: Record<string, Record<string, unknown>>
      components: { schemas: Record<string, { properties: object }> }
    }
    const operations = Object.entries(paths).flatMap(([path, item]) =>
      Object.keys(item).map(
        (method) => [method, new RegExp(`^${path.replaceAll(/\{[^}]+\}/g, '[^/]+')}$`)] as const,
      ),
    )
    const unknown = everySent
      .filter(({ url }) => !url.pathname.startsWith('/v3/'))
      .filter(
        ({ method, url }) =>
          !operations.some(
            ([one, path]) => one === method.toLowerCase() && path.test(url.pathname),
          ),
      )
    expect(unknown.map(({ method, url }) => `${method} ${url.pathname}`)).toEqual([])
    for (const [name, { shape }] of Object.entries({
      Run: RunResponse,
      Transaction: RunDetailResponse,
      QueueTransaction,
      ReplayTransaction,
    }))
      expect(Object.keys(components.schemas[name]?.properties ?? {}).toSorted(), name).toEqual(
        Object.keys(shape).toSorted(),
      )
  })
})
