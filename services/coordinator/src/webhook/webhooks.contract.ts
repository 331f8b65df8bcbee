import type {
  CredentialEvent,
  CredentialEventKind,
} from '@integration-host/shared/contracts/credential'
import { until } from '@integration-host/shared/test-support/eventually'
import {
  createWebhooksFile,
  startWebhookReceiver as startReceiver,
  type WebhookReceiver as Receiver,
} from '@integration-host/shared/test-support/webhook-receiver'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import {
  type Backends,
  type Fixture,
  type FixtureOptions,
  openBackends,
  startFixture,
} from '../../test-support/fixture.ts'
import { publishCredentialEvent } from '../../test-support/credential-event.ts'
import { processOf } from '../../test-support/process-of.ts'
import type { Step } from '../step/step.ts'

const timing = {
  webhooks: {
    retry: { baseMs: 50, capMs: 200 },
    busyMs: { healthy: 20, failing: 50 },
    timeoutMs: 300,
  },
}

/** Tests the delivery of webhooks. All backends must pass these tests. */
export function webhooksContract(kind: 'embedded' | 'real'): void {
  describe(`webhooks on ${kind} backends`, () => {
    let backends: Backends
    const opened: AsyncDisposable[] = []
    const use = <Opened extends AsyncDisposable>(resource: Opened): Opened => {
      opened.push(resource)
      return resource
    }
    beforeAll(async () => {
      backends = await openBackends(kind, { Sale: ['sell'], Webhook: ['deliver'] })
    })
    afterEach(async () => {
      for (const resource of opened.splice(0).toReversed()) await resource[Symbol.asyncDispose]()
    })
    afterAll(() => backends[Symbol.asyncDispose]())

    /** A process whose step performs the action that its initial data names. */
    const sale = processOf('Sale', {
      retry: { maxAttempts: 2, baseMs: 1 },
      steps: {
        sell: async (step: Step<{ how: string; url?: string }>) => {
          const { how, url = '' } = step.initialData
          if (how === 'fails') return step.fail('the customer said 4711')
          if (how === 'calls') return step.execute({ url })
          return step.complete({ secret: 'business data' })
        },
      },
    })
    const start = async (
      receivers: readonly Receiver[],
      options: FixtureOptions & { readonly entries?: readonly object[] } = {},
    ) => {
      const entries = options.entries ?? receivers.map((receiver) => receiver.entry())
      const file = use(await createWebhooksFile(entries))
      const host = use(
        await startFixture(backends, {
          processes: [sale],
          timing,
          ...options,
          env: { ...file.env, ...options.env },
        }),
      )
      return { host, file }
    }
    const fresh = (): string => crypto.randomUUID()
    const realm = (): string => fresh().slice(0, 8)
    let clock = 0
    const publish = (
      { bus }: Fixture,
      event: Pick<CredentialEvent, 'Name' | 'Version'> & Partial<CredentialEvent>,
      eventKind: CredentialEventKind = 'stored',
    ) => {
      const At = new Date(Date.now() + (clock += 1)).toISOString()
      return publishCredentialEvent(bus, eventKind, { At, ...event })
    }
    const types = ({ delivered }: Receiver) => delivered.map(({ type }) => type)
    const runsOf = async (host: Fixture, status?: string) => {
      const query = status === undefined ? '' : `?status=${status}`
      const response = await host.call(`/processes/Webhook/transactions${query}`)
      const { items } = (await response.json()) as {
        items: {
          TransactionID: string
          ErrorClass: string | null
          InitialData: { MessageID: string }
        }[]
      }
      return items
    }

    it('a receiver gets a signed webhook for each credential event, with names and error classes only', async () => {
      const receiver = use(await startReceiver())
      const { host } = await start([receiver])
      const company = realm()
      const Name = `ACC-${company}`
      const labelled = { Label: 'Bäckerei <Müller>', Tags: { region: 'north' } }
      await publish(host, { Name, Version: 1, ...labelled })
      const fault = {
        Code: 'invalid_grant',
        Message: `Couldn't refresh token for realm ${Name}, {"error":"invalid_grant"}`,
        At: '2026-11-20T00:00:00.000Z',
        Attempts: 1,
        Final: true,
      }
      await publish(host, { Name, Version: 2, Fault: fault }, 'faulted')
      await publish(host, { Name, Version: 3, HardExpiry: '2027-02-01T00:00:00.000Z' }, 'expiring')
      await publish(host, { Name, Version: 3, revoked: true }, 'removed')
      await until(() => receiver.delivered.length === 4)
      expect(receiver.forged).toEqual([])
      expect(types(receiver)).toEqual([
        'credential.stored',
        'credential.faulted',
        'credential.expiring',
        'credential.removed',
      ])
      expect(receiver.delivered.map(({ id }) => id)).toEqual([
        `${Name}/1/stored`,
        `${Name}/2/faulted`,
        `${Name}/3/expiring`,
        `${Name}/3/removed`,
      ])
      expect(receiver.delivered[0]?.data).toMatchObject(labelled)
      expect(receiver.delivered[1]?.data).toEqual({
        Realm: company,
        Name,
        Environment: company,
        Expiry: '2027-01-01T00:00:00.000Z',
        Version: 2,
        Fault: { Code: 'invalid_grant', At: '2026-11-20T00:00:00.000Z', Final: true },
      })
      expect(receiver.delivered[2]?.data['HardExpiry']).toBe('2027-02-01T00:00:00.000Z')
      expect(receiver.delivered[3]?.data['revoked']).toBe(true)
    })

    it('a receiver gets a webhook for each completed and each failed transaction, without the data of the transaction', async () => {
      const receiver = use(await startReceiver())
      const { host } = await start([receiver])
      const [good, bad, company] = [`a.b ${fresh()}`, fresh(), realm()]
      await host.queue(good, { how: 'completes', customer: 'Ada' }, company)
      await host.queue(bad, { how: 'fails', customer: 'Bob' })
      await until(() => receiver.delivered.length === 2)
      const byType = new Map(receiver.delivered.map((webhook) => [webhook.type, webhook]))
      const completed = byType.get('transaction.completed')
      expect(completed?.data).toEqual({
        Realm: company,
        Process: 'Sale',
        TransactionID: good,
        ReplayID: 0,
        Status: 'Completed',
        StepName: 'sell',
        Version: 2,
        ErrorClass: null,
        InDoubt: false,
      })
      expect(completed?.at).toBe((await host.run(good)).UpdatedAt)
      // An id contains no full stop, because the signature uses full stops as separators.
      expect(completed?.id).toBe(`Sale/${encodeURIComponent(good).replace('.', '%2E')}/0/2`)
      expect(byType.get('transaction.failed')?.data).toMatchObject({
        Realm: null,
        TransactionID: bad,
        Status: 'Failed',
        ErrorClass: 'step_failed',
      })
      const texts = receiver.received.map(({ text }) => text).join()
      expect(texts).not.toMatch(/Ada|Bob|4711|business/)
    })

    it('a step that several attempts leave in doubt is reported in one webhook, before the failure of its run', async () => {
      const receiver = use(await startReceiver())
      const { host } = await start([receiver])
      host.target.on('/unsure', (_, response) => void response.writeHead(500).end())
      const id = fresh()
      await host.queue(id, { how: 'calls', url: `${host.target.url}/unsure` }, realm())
      await until(() => types(receiver).includes('transaction.failed'))
      expect(host.target.callsTo('/unsure')).toHaveLength(2)
      expect(receiver.delivered.map(({ type, data }) => [type, data['Status']])).toEqual([
        ['transaction.in_doubt', 'Retrying'],
        ['transaction.failed', 'Failed'],
      ])
      expect(receiver.delivered[0]?.id).toBe(`Sale/${id}/0/sell/in_doubt`)
      expect(receiver.delivered[1]?.data).toMatchObject({ InDoubt: true, ErrorClass: 'http_500' })
    })

    it('a receiver that was unavailable gets all webhooks when it is available again, in order for each company', async () => {
      const receiver = use(await startReceiver())
      const { host } = await start([receiver])
      receiver.respond((_, response) => void response.writeHead(500).end())
      const companies = [realm(), realm(), realm()]
      for (let version = 1; version <= 12; version += 1)
        for (const company of companies)
          await publish(host, { Name: `ACC-${company}`, Version: version })
      await until(() => receiver.received.length >= 6)
      await receiver.close()
      const failed = receiver.received.length
      const before = new Set(receiver.received.map(({ id }) => id))
      await until(async () => (await runsOf(host, 'Retrying')).length === 3)
      receiver.respond(null)
      await receiver.open()
      const firstOfEach = () =>
        receiver.received
          .slice(failed)
          .filter(({ id }, index, all) => all.findIndex((other) => other.id === id) === index)
      await until(() => firstOfEach().length === 36)
      const after = firstOfEach()
      for (const company of companies)
        expect(
          after.filter(({ data }) => data['Realm'] === company).map(({ data }) => data['Version']),
        ).toEqual(Array.from({ length: 12 }, (_, index) => index + 1))
      // While the receiver was unavailable, only the first webhook of each company was attempted.
      expect([...before].toSorted()).toEqual(
        companies.map((company) => `ACC-${company}/1/stored`).toSorted(),
      )
    })

    it('a webhook whose response comes too late is sent again with the same id, before the next one of the company', async () => {
      const receiver = use(await startReceiver())
      const { host } = await start([receiver])
      receiver.respond((_, response) => {
        if (receiver.received.length > 1) response.writeHead(204).end()
      })
      const Name = `ACC-${realm()}`
      await publish(host, { Name, Version: 1 })
      await publish(host, { Name, Version: 2 })
      await until(() => receiver.delivered.length === 2)
      expect(
        [...receiver.received.slice(0, 2), receiver.delivered[1]].map((one) => one?.id),
      ).toEqual([`${Name}/1/stored`, `${Name}/1/stored`, `${Name}/2/stored`])
    })

    it('two copies of the same event are delivered as one webhook', async () => {
      const receiver = use(await startReceiver())
      const { host } = await start([receiver])
      const Name = `ACC-${realm()}`
      const At = new Date().toISOString()
      await publish(host, { Name, Version: 1, At })
      await until(() => receiver.delivered.length === 1)
      await publish(host, { Name, Version: 1, At })
      await publish(host, { Name, Version: 2 })
      await until(() => receiver.delivered.length === 2)
      expect(receiver.delivered.map(({ id }) => id)).toEqual([
        `${Name}/1/stored`,
        `${Name}/2/stored`,
      ])
      const runs = await runsOf(host)
      const ids = runs.map(({ InitialData }) => InitialData.MessageID)
      expect(ids.filter((id) => id.startsWith(Name))).toHaveLength(2)
    })

    it('a receiver gets only the events to which it subscribes, and is not delayed by a failing receiver', async () => {
      const [away, there] = [use(await startReceiver()), use(await startReceiver())]
      const { host } = await start([], {
        entries: [away.entry(), there.entry(['credential.removed', 'transaction.failed'])],
      })
      away.respond(() => {}) // the receiver never responds
      const companies = Array.from({ length: 20 }, realm)
      for (const company of companies) {
        await publish(host, { Name: `ACC-${company}`, Version: 1 })
        await publish(host, { Name: `ACC-${company}`, Version: 2 }, 'removed')
      }
      await until(() => there.delivered.length === 20)
      expect(new Set(types(there))).toEqual(new Set(['credential.removed']))
      away.respond(null)
      await until(
        () => away.delivered.filter(({ type }) => type === 'credential.removed').length >= 20,
      )
    })

    it.each([
      ['redirects', (_, response) => void response.writeHead(307, { location: '/other' }).end()],
      ['rejects', (_, response) => void response.writeHead(403).end()],
      ['hangs', () => {}],
      ['sends broken HTTP', (_, response) => void response.socket?.end('nonsense\r\n\r\n')],
      [
        'sends 1 MB of headers',
        (_, response) => void response.writeHead(200, { a: 'x'.repeat(1e6) }).end(),
      ],
    ] as const satisfies readonly (readonly [string, Parameters<Receiver['respond']>[0]])[])(
      'if a receiver %s, the webhook is sent again until the receiver responds with 2xx',
      async (_, respond) => {
        const receiver = use(await startReceiver())
        const { host } = await start([receiver])
        receiver.respond(respond)
        await publish(host, { Name: `ACC-${realm()}`, Version: 1 })
        await until(() => receiver.received.length >= 2)
        receiver.respond(null)
        const tried = receiver.received.length
        await until(() => receiver.received.length > tried)
        await until(async () => (await runsOf(host, 'Retrying')).length === 0)
        expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(1)
      },
    )

    it("a receiver's endless response is aborted, and the webhook counts as delivered", async () => {
      const receiver = use(await startReceiver())
      const { host } = await start([receiver])
      let sent = 0
      const closed = Promise.withResolvers<void>()
      receiver.respond((_, response) => {
        response.writeHead(200)
        const chunk = Buffer.alloc(65_536)
        const write = (): void => {
          while (!response.destroyed && response.write(chunk)) sent += chunk.length
        }
        response
          .on('drain', write)
          .on('close', closed.resolve)
          .on('error', () => {})
        write()
      })
      await publish(host, { Name: `ACC-${realm()}`, Version: 1 })
      await closed.promise
      expect(sent).toBeLessThan(16_000_000) // the buffers of the operating system can hold about this much
      await until(async () => (await runsOf(host, 'Retrying')).length === 0)
      expect(receiver.received).toHaveLength(1)
    })

    it('a webhook is not retried after a response with 410, but a resume of its run delivers it again', async () => {
      const receiver = use(await startReceiver())
      const { host } = await start([receiver])
      receiver.respond((_, response) => void response.writeHead(410).end())
      const Name = `ACC-${realm()}`
      await publish(host, { Name, Version: 1 })
      let failed: Awaited<ReturnType<typeof runsOf>>[number] | undefined
      await until(async () => {
        failed = (await runsOf(host, 'Failed')).find(
          ({ InitialData }) => InitialData.MessageID === `${Name}/1/stored`,
        )
        return failed !== undefined
      })
      expect(failed).toMatchObject({ ErrorClass: 'http_410' })
      receiver.respond(null)
      const path = `/processes/Webhook/transactions/${failed?.TransactionID}`
      const tried = receiver.received.length
      expect((await host.call(`${path}/resume`, { method: 'POST' })).status).toBe(202)
      await until(() => receiver.received.length > tried)
      expect(receiver.delivered.map(({ id }) => id)).toEqual([`${Name}/1/stored`])
    })

    it('no webhook is sent to an address in a private network unless the settings allow the host by name', async () => {
      const receiver = use(await startReceiver())
      const url = receiver.url
        .replace('127.0.0.1', 'innocent.example.com')
        .replace('http:', 'https:')
      const { host } = await start([], {
        entries: [{ ...receiver.entry(), url }],
        timing: {
          webhooks: {
            ...timing.webhooks,
            // The private address to which an attacker's DNS server resolves the host name.
            resolve: ((_: string, __: object, callback: (...result: unknown[]) => void) =>
              callback(null, [{ address: '127.0.0.1', family: 4 }])) as never,
          },
        },
      })
      await publish(host, { Name: `ACC-${realm()}`, Version: 1 })
      await until(async () =>
        (await runsOf(host, 'Retrying')).some(
          (run) => run.ErrorClass === 'webhook_address_refused',
        ),
      )
      expect(receiver.received).toEqual([])
    })

    it('a change of the webhooks file takes effect within a second; while the file is invalid, the last valid list is used', async () => {
      const [first, second] = [use(await startReceiver()), use(await startReceiver())]
      const { host, file } = await start([first])
      await file.write('not JSON')
      await until(() => host.log.some(({ msg }) => msg.startsWith('list file is not valid')))
      const company = realm()
      await publish(host, { Name: `ACC-${company}`, Version: 1 })
      await until(() => first.delivered.length === 1)
      await file.write([second.entry()])
      await until(
        () => host.log.filter(({ msg }) => msg === 'list was loaded from its file').length === 2,
      )
      await publish(host, { Name: `ACC-${company}`, Version: 2 })
      await until(() => second.delivered.length === 1)
      expect(first.delivered).toHaveLength(1)
    })

    it('webhooks to a receiver that is no longer in the webhooks file fail, and their error names the reason', async () => {
      const receiver = use(await startReceiver())
      const { host, file } = await start([receiver])
      await receiver.close()
      const Name = `ACC-${realm()}`
      const At = new Date(Date.now() - 16 * 60_000).toISOString()
      await publish(host, { Name, Version: 1, At })
      await publish(host, { Name, Version: 2, At })
      await until(async () => (await runsOf(host, 'Retrying')).length > 0)
      await file.write([])
      await until(async () => {
        const failed = await runsOf(host, 'Failed')
        return (
          failed.filter(
            (run) =>
              run.ErrorClass === 'webhook_receiver_removed' &&
              run.InitialData.MessageID.startsWith(Name),
          ).length === 2
        )
      })
    })

    it('the list of processes marks the process Webhook as built in, and clients cannot queue its transactions', async () => {
      const receiver = use(await startReceiver())
      const { host } = await start([receiver])
      const response = await host.call('/processes')
      expect(await response.json()).toMatchObject({
        items: [
          { Process: 'Sale', BuiltIn: false },
          { Process: 'Webhook', BuiltIn: true, Steps: ['deliver'] },
        ],
      })
      const forged = { TransactionID: fresh(), InitialData: {} }
      for (const path of ['', '/bulk']) {
        const queued = await host.call(`/processes/Webhook/transactions${path}`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify(path === '' ? forged : [forged]),
        })
        expect(queued.status).toBe(409)
        expect(await queued.json()).toMatchObject({ code: 'process_built_in' })
      }
    })
  })
}
