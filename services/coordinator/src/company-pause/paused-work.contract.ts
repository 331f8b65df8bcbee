import { DecisionLink } from '@integration-host/shared/contracts/decision'
import { changesQueue } from '@integration-host/shared/contracts/provider-event'
import { START_EXCHANGE } from '@integration-host/shared/contracts/topology'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import {
  createWebhooksFile,
  startWebhookReceiver,
} from '@integration-host/shared/test-support/webhook-receiver'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { fakeBooks } from '../../test-support/fake-books.ts'
import { respondWith } from '../../test-support/fake-target.ts'
import { type Fixture, type FixtureOptions, onBackends } from '../../test-support/fixture.ts'
import { changeEvent, isConsumed, publishEvent } from '../change/changes.contract.ts'
import { defineProcess } from '../step/define-process.ts'

const sale = defineProcess('Sale', {
  on: [{ provider: 'intuit', entity: 'Invoice', operations: ['create', 'update'] }],
  schedules: [{ name: 'daily', cron: '0 2 * * *', each: 'company' }],
}).step('sell', (step) => step.complete())
const collect = defineProcess('Collect')
  .change('paid', {
    entity: 'Invoice',
    id: () => '129',
    until: (invoice) => invoice['Balance'] === 0,
  })
  .step('end', (step) => step.complete())
const approve = defineProcess('Approve')
  .event('approved', { data: z.object({ approved: z.boolean() }), ask: () => ({ title: 'Pay?' }) })
  .step('pay', (step) => step.complete())
const bill = defineProcess('Bill').step('create', (step) =>
  step.execute(
    { method: 'POST', url: `/v3/company/${step.realm}/invoice`, body: { DocNumber: '1' } },
    { credential: `ACC-${step.realm}` },
  ),
)
const late = defineProcess('Late', { deadlineSeconds: 0.3 }).step('work', (step) => step.complete())
const PAUSED = { Status: 'Waiting', WaitingFor: 'paused:42', Attempts: [] }

/** Tests what stops and what goes on while a company is paused. All backends must pass these tests. */
export function pausedWorkContract(kind: 'embedded' | 'real'): void {
  describe(`the work for a paused company on ${kind} backends`, () => {
    const { start: open, use } = onBackends(
      kind,
      {
        Sale: ['sell'],
        Collect: ['paid', 'end'],
        Approve: ['approved', 'pay'],
        Bill: ['create'],
        Late: ['work'],
        ChangeLook: ['read'],
        TakeBack: ['look', 'remove'],
        Webhook: ['deliver'],
      },
      { processes: [sale, collect, approve, bill, late] },
    )
    const start = async (options: FixtureOptions = {}): Promise<Fixture> => {
      const host = await open(options)
      const companies = { items: ['42', '43'].map((realm) => ({ Name: `ACC-${realm}` })) }
      const page = JSON.stringify({ ...companies, next_cursor: null })
      host.target.on('/credentials', respondWith(200, page, { 'content-type': 'application/json' }))
      await isConsumed(host)
      return host
    }
    const post = async (host: Fixture, path: string, body: object = {}): Promise<unknown> => {
      const response = await host.call(path, postJson(body))
      expect(response.status, await response.clone().text()).toBeLessThan(300)
      return response.json()
    }
    const pause = (host: Fixture) => post(host, '/realms/42/pause', { Reason: 'month end' })
    const resume = (host: Fixture) => post(host, '/realms/42/resume')
    const queue = (host: Fixture, process: string, TransactionID: string) =>
      post(host, `/processes/${process}/transactions`, {
        TransactionID,
        InitialData: null,
        Realm: '42',
      })
    const runOf = async (host: Fixture, process: string, id: string) =>
      (await host.call(`/processes/${process}/transactions/${encodeURIComponent(id)}`)).json()
    /** Returns the ids of the runs of a process and a company. */
    const idsOf = async (host: Fixture, process: string, realm = '42'): Promise<string[]> => {
      const response = await host.call(`/processes/${process}/transactions?realm=${realm}`)
      const { items } = (await response.json()) as { items: { TransactionID: string }[] }
      return items.map(({ TransactionID }) => TransactionID)
    }
    /** Waits for the only run of a process and the company, and returns its id. */
    const onlyRun = async (host: Fixture, process: string): Promise<string> => {
      await eventually(async () => expect(await idsOf(host, process)).toHaveLength(1))
      const [id = ''] = await idsOf(host, process)
      return id
    }
    const reaches = (host: Fixture, process: string, id: string, state: object) =>
      eventually(async () => expect(await runOf(host, process, id)).toMatchObject(state))

    it('changes, start messages and schedules become runs, which wait until the resume', async () => {
      const host = await start()
      await pause(host)
      const event = changeEvent()
      await publishEvent(host, event)
      await host.bus.publish({
        exchange: START_EXCHANGE,
        routingKey: 'Sale',
        messageId: 'm-1',
        type: '',
        body: { TransactionID: 'm-1', InitialData: null, Realm: '42' },
        mandatory: true,
      })
      await post(host, '/schedules/Sale/daily/run')
      await eventually(async () => expect(await idsOf(host, 'Sale')).toHaveLength(3))
      const ids = await idsOf(host, 'Sale')
      expect(ids).toEqual(expect.arrayContaining([event.Id, 'm-1']))
      for (const id of ids) await reaches(host, 'Sale', id, PAUSED)
      await eventually(async () => expect(await idsOf(host, 'Sale', '43')).toHaveLength(1))
      const [other = ''] = await idsOf(host, 'Sale', '43')
      await reaches(host, 'Sale', other, { Status: 'Completed' })
      await resume(host)
      for (const id of ids) await reaches(host, 'Sale', id, { Status: 'Completed' })
    })

    it('its change feed is not read until the resume', async () => {
      const host = await start()
      const FEED = '/v3/company/42/cdc'
      const feed = respondWith(200, '{"CDCResponse":[]}', { 'content-type': 'application/json' })
      host.target.on(FEED, feed)
      host.target.on('/v3/company/43/cdc', feed)
      await pause(host)
      await post(host, '/schedules/ChangeFeed/sweep/run')
      const id = await onlyRun(host, 'ChangeFeed')
      await reaches(host, 'ChangeFeed', id, PAUSED)
      await eventually(() => expect(host.target.callsTo('/v3/company/43/cdc')).toHaveLength(1))
      expect(host.target.callsTo(FEED)).toEqual([])
      await resume(host)
      await eventually(() => expect(host.target.callsTo(FEED)).toHaveLength(1))
    })

    it('an object for which a run waits is not read until the resume', async () => {
      const host = await start()
      const INVOICE = '/v3/company/42/invoice/129'
      let balance = 66
      host.target.on(INVOICE, (_, response) =>
        respondWith(200, JSON.stringify({ Invoice: { Id: '129', Balance: balance } }), {
          'content-type': 'application/json',
        })(_, response),
      )
      await eventually(async () =>
        expect((await host.bus.depth(changesQueue('Collect')))?.consumers).toBeGreaterThan(0),
      )
      await queue(host, 'Collect', 'c')
      await reaches(host, 'Collect', 'c', { WaitingFor: 'change:paid' })
      await eventually(() => expect(host.target.callsTo(INVOICE)).toHaveLength(1))
      const first = await idsOf(host, 'ChangeLook')
      await pause(host)
      balance = 0
      await publishEvent(host, changeEvent())
      await eventually(async () =>
        expect((await idsOf(host, 'ChangeLook')).length).toBeGreaterThan(first.length),
      )
      const looks = (await idsOf(host, 'ChangeLook')).filter((id) => !first.includes(id))
      for (const id of looks) await reaches(host, 'ChangeLook', id, PAUSED)
      expect(host.target.callsTo(INVOICE)).toHaveLength(1)
      await resume(host)
      await reaches(host, 'Collect', 'c', { Status: 'Completed' })
    })

    it('nothing is taken back until the resume', async () => {
      const host = await start()
      fakeBooks(host.target, { realm: '42', firstId: 129 })
      const object = '/v3/company/42/invoice/129'
      host.target.on(object, respondWith(404))
      await queue(host, 'Bill', 'b')
      await reaches(host, 'Bill', 'b', { Status: 'Completed' })
      await pause(host)
      await post(host, '/operations', {
        Action: 'take-back',
        Process: 'Bill',
        Ids: ['b'],
        Reason: 'wrong month',
      })
      const id = await onlyRun(host, 'TakeBack')
      await reaches(host, 'TakeBack', id, PAUSED)
      expect(host.target.callsTo(object)).toEqual([])
      await resume(host)
      await eventually(() => expect(host.target.callsTo(object).length).toBeGreaterThan(0))
    })

    it('a person decides by a link, and the run waits with the decision', async () => {
      const host = await start()
      await queue(host, 'Approve', 'a')
      await reaches(host, 'Approve', 'a', { WaitingFor: 'event:approved' })
      const links = '/processes/Approve/transactions/a/events/approved/links'
      const { Url } = DecisionLink.parse(await post(host, links, { For: 'ada@example.com' }))
      await pause(host)
      const body = new URLSearchParams({ choice: 'true' })
      expect((await fetch(Url, { method: 'POST', body })).status).toBe(200)
      await reaches(host, 'Approve', 'a', {
        StepName: 'pay',
        WaitingFor: 'paused:42',
        Items: [{ StepName: 'approved', Status: 'Completed', Data: { approved: true } }],
      })
      await resume(host)
      await reaches(host, 'Approve', 'a', { Status: 'Completed' })
    })

    it('its webhooks are sent', async () => {
      const receiver = use(await startWebhookReceiver())
      const file = use(await createWebhooksFile([receiver.entry()]))
      const host = await start({ env: file.env })
      await pause(host)
      await queue(host, 'Late', 'l')
      await eventually(() =>
        expect(receiver.delivered).toMatchObject([
          { type: 'transaction.failed', data: { TransactionID: 'l' } },
        ]),
      )
    })
  })
}
