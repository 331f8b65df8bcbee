import type { DeadLetterPage } from '@integration-host/shared/contracts/operations'
import { changesQueue, type ProviderEvent } from '@integration-host/shared/contracts/provider-event'
import { DEAD_EXCHANGE } from '@integration-host/shared/contracts/topology'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { type Fixture, type FixtureOptions, onBackends } from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'
import { createChangeWaits } from './change-waits.ts'
import { changeEvent, publishEvent } from './changes.contract.ts'

const collect = defineProcess('Collect')
  .change('paid', {
    entity: 'Invoice',
    id: () => '129',
    until: (invoice) => invoice['Balance'] === 0,
  })
  .step('end', (step) => step.complete(step.previous.data['Id'] ?? null))
const settle = defineProcess('Settle')
  .change('open', {
    entity: 'Invoice',
    id: () => '129',
    until: (invoice) => invoice['Balance'] !== 0,
  })
  .step('end', (step) => step.complete())
const INVOICE = '/v3/company/42/invoice/129'
const SECONDS = 1_000

/** Tests the waits for changes in the books, from the event to the run. All backends must pass these tests. */
export function changeWaitsContract(kind: 'embedded' | 'real'): void {
  describe(`runs that wait for changes on ${kind} backends`, () => {
    const opened = onBackends(
      kind,
      {
        Collect: ['paid', 'end'],
        Settle: ['open', 'end'],
        ChangeLook: ['read'],
      },
      { processes: [collect, settle] },
    )
    let balance = 66
    const start = async (options: FixtureOptions = {}): Promise<Fixture> => {
      const host = await opened.start(options)
      host.target.on(INVOICE, (_, response) => {
        response.writeHead(200, { 'content-type': 'application/json' })
        response.end(JSON.stringify({ Invoice: { Id: '129', Balance: balance } }))
      })
      await eventually(async () =>
        expect((await host.bus.depth(changesQueue('Collect')))?.consumers).toBeGreaterThan(0),
      )
      return host
    }
    const changed = (host: Fixture, second: number): Promise<void> => {
      const ChangedAt = new Date(Date.parse('2026-11-23T17:05:09Z') + second * SECONDS)
      return publishEvent(host, changeEvent({ ChangedAt: ChangedAt.toISOString() }))
    }

    it('the object is read when the run gets there and after each change, and the run outlives restarts', async () => {
      balance = 66
      const first = await start()
      await first.queue('c-1', null, '42')
      expect(await first.reached('c-1', 'Waiting')).toMatchObject({ WaitingFor: 'change:paid' })
      await eventually(() => expect(first.target.callsTo(INVOICE)).toHaveLength(1))
      await first[Symbol.asyncDispose]()
      const second = await start()
      await changed(second, 1)
      await eventually(() => expect(second.target.callsTo(INVOICE)).toHaveLength(1))
      expect((await second.run('c-1')).Status).toBe('Waiting')
      balance = 0
      await changed(second, 2)
      const run = await second.reached('c-1', 'Completed')
      expect(run.Items).toMatchObject([
        { StepName: 'paid', Status: 'Completed', Data: { Id: '129', Balance: 0 } },
        { StepName: 'end', Data: '129' },
      ])
      expect(second.target.callsTo(INVOICE)).toHaveLength(2)
      // A change after the end of the last wait costs nothing.
      await changed(second, 3)
      await eventually(async () =>
        expect(await second.bus.depth(changesQueue('Collect'))).toMatchObject({ ready: 0 }),
      )
      expect(second.target.callsTo(INVOICE)).toHaveLength(2)
    })

    it('an object that is read before its run is recorded as waiting still moves the run on', async () => {
      balance = 0
      const isRead = Promise.withResolvers<void>()
      let parks = 0
      const host = await start({
        wrapSource: (source) => ({
          ...source,
          async record(lease, transition) {
            if (transition.waitingFor === 'change:paid') {
              parks += 1
              await isRead.promise
            }
            return source.record(lease, transition)
          },
        }),
      })
      await host.queue('c-1', null, '42')
      await eventually(async () => {
        const { Items } = await host.run('c-1')
        expect(Items).toMatchObject([{ StepName: 'paid', Status: 'Received' }])
      })
      isRead.resolve()
      await host.reached('c-1', 'Completed')
      expect([parks, host.target.callsTo(INVOICE).length]).toEqual([1, 1])
    })

    it('a message that is no event of the queue is dead-lettered', async () => {
      const host = await start()
      await publishEvent(host, changeEvent(), { Id: 'x' })
      await eventually(async () => {
        const response = await host.call('/processes/Collect/dead-letters?limit=10')
        const { items } = (await response.json()) as DeadLetterPage
        expect(items.map(({ Reason }) => Reason)).toEqual([expect.stringMatching(/^malformed/)])
      })
    })

    it('a dead-lettered change has its object read when it is requeued, as long as a run waits for the object', async () => {
      balance = 66
      const host = await start()
      await host.queue('c-1', null, '42')
      await host.reached('c-1', 'Waiting')
      await eventually(() => expect(host.target.callsTo(INVOICE)).toHaveLength(1))
      const dead = (event: ProviderEvent): Promise<void> =>
        host.bus.publish({
          exchange: DEAD_EXCHANGE,
          routingKey: 'Collect',
          messageId: event.Id,
          type: 'dead',
          headers: { reason: 'delivery_limit' },
          body: event,
          mandatory: true,
        })
      await dead(changeEvent())
      await dead(changeEvent({ EntityId: '130' }))
      const letters = async () => {
        const response = await host.call('/processes/Collect/dead-letters?limit=10')
        return ((await response.json()) as DeadLetterPage).items
      }
      await eventually(async () => expect(await letters()).toHaveLength(2))
      balance = 0
      const statuses = await Promise.all(
        (await letters()).map(async ({ ID }) => {
          const path = `/processes/Collect/dead-letters/${ID}/requeue`
          return (await host.call(path, { method: 'POST' })).status
        }),
      )
      expect(statuses.toSorted((a, b) => a - b)).toEqual([202, 409])
      await host.reached('c-1', 'Completed')
      expect(await letters()).toHaveLength(1)
    })

    it('the retention removes the wait of a cancelled run, and keeps that of a run that waits', async () => {
      balance = 66
      const host = await start()
      for (const id of ['ended', 'waits']) {
        await host.queue(id, null, '42')
        await host.reached(id, 'Waiting')
      }
      await host.call('/processes/Collect/transactions/ended/cancel', { method: 'POST' })
      const waits = createChangeWaits(host.source)
      await waits.removeEnded(new AbortController().signal)
      const left: string[] = []
      for await (const { Value } of waits.of({ realm: '42', entity: 'Invoice', id: '129' }))
        left.push(Value.TransactionID)
      expect(left).toEqual(['waits'])
    })

    it('the store finds the waits for an object in pages, keeps a wait that began once more, and removes a company', async () => {
      const source = opened.use(await opened.backends().openSource())
      const waits = createChangeWaits(source)
      const object = { realm: '42', entity: 'Invoice', id: '1' } as const
      const wait = (n: number, Version = 1) =>
        ({ Process: 'P', TransactionID: `t/${n}`, ReplayID: 0, Place: 'paid', Version }) as const
      const found = async (id: string): Promise<string[]> => {
        const ids: string[] = []
        for await (const { Value } of waits.of({ ...object, id })) ids.push(Value.TransactionID)
        return ids.toSorted()
      }
      for (let n = 0; n < 205; n += 1) await waits.begin(object, wait(n))
      await waits.begin({ ...object, id: '12' }, wait(0))
      await waits.begin({ ...object, realm: '421' }, wait(0))
      expect(await found('1')).toHaveLength(205)
      expect(await found('12')).toEqual(['t/0'])
      const rows = []
      for await (const row of waits.of({ ...object, id: '12' })) rows.push(row)
      const [row] = rows
      if (row === undefined) throw new Error('there is a wait')
      await waits.begin({ ...object, id: '12' }, wait(0, 7))
      await waits.end(row)
      expect(await found('12')).toEqual(['t/0'])
      await waits.removeRealm('42')
      expect([await found('1'), await waits.hasAny('42')]).toEqual([[], false])
      expect(await waits.hasAny('421')).toBe(true)
    })
  })
}
