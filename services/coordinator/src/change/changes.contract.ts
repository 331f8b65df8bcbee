import type { DeadLetterPage } from '@integration-host/shared/contracts/operations'
import {
  onQueue,
  PROVIDER_EXCHANGE,
  type ProviderEvent,
  providerEventId,
  providerRoutingKey,
} from '@integration-host/shared/contracts/provider-event'
import { createEventPublisher } from '@integration-host/shared/messaging/provider-events'
import { IntegrationError } from '@integration-host/shared/errors'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { type Fixture, type FixtureOptions, onBackends } from '../../test-support/fixture.ts'
import { ProviderChange } from '../step/change-trigger.ts'
import { defineProcess } from '../step/define-process.ts'
import { processOf } from '../../test-support/process-of.ts'
import type { Step } from '../step/step.ts'

const complete = (step: Step): void => void step.complete()
export const sale = defineProcess('Sale', {
  on: [{ provider: 'intuit', entity: 'Invoice', operations: ['create', 'update'] }],
  input: ProviderChange,
}).step('sell', (step) => step.complete())
export const refund = processOf('Refund', {
  on: [{ provider: 'intuit', entity: 'Payment', operations: ['void'] }],
  steps: { refund: complete },
})

export const changeEvent = (change: Partial<Omit<ProviderEvent, 'Id'>> = {}): ProviderEvent => {
  const event = {
    Provider: 'intuit' as const,
    Realm: '42',
    Entity: 'Invoice' as const,
    EntityId: '129',
    Operation: 'update' as const,
    ChangedAt: '2026-11-23T17:05:09.179Z',
    Source: 'webhook' as const,
    ...change,
  }
  return { ...event, Id: providerEventId(event) }
}

export const publishEvent = (host: Fixture, event: ProviderEvent, body: unknown = event) =>
  host.bus.publish({
    exchange: PROVIDER_EXCHANGE,
    routingKey: providerRoutingKey(event),
    messageId: event.Id,
    type: providerRoutingKey(event),
    body,
    mandatory: true,
  })

/** Resolves when the queue of the process is bound and has a consumer. */
export const isConsumed = (host: Fixture, process = 'Sale', consumers = 1): Promise<void> =>
  eventually(async () =>
    expect(await host.bus.depth(onQueue(process))).toMatchObject({ consumers }),
  )

/** Tests how changes in the books start runs, from the event to the run. All backends must pass these tests. */
export function changesContract(kind: 'embedded' | 'real'): void {
  describe(`runs that changes start on ${kind} backends`, () => {
    const opened = onBackends(
      kind,
      { Sale: ['sell'], Refund: ['refund'] },
      { processes: [sale, refund] },
    )

    const start = async (options: FixtureOptions = {}): Promise<Fixture> => {
      const host = await opened.start(options)
      const [first] = options.processes ?? [sale]
      if (first !== undefined && first.on.length > 0) await isConsumed(host, first.name)
      return host
    }
    const deadLetters = async (host: Fixture) => {
      const response = await host.call('/processes/Sale/dead-letters?limit=100')
      return ((await response.json()) as DeadLetterPage).items
    }
    /** Returns how many events of the process were counted with each result. */
    const counts = async (host: Fixture, process = 'Sale'): Promise<Record<string, number>> => {
      const text = await (await host.call('/metrics')).text()
      const lines = [...text.matchAll(/^coordinator_changes_total\{(.*?)\} (\d+)$/gm)]
      return Object.fromEntries(
        lines
          .filter(([, labels]) => labels?.includes(`process="${process}"`))
          .map(([, labels = '', count]) => [
            /result="(\w+)"/.exec(labels)?.[1] ?? '',
            Number(count),
          ]),
      )
    }

    it('a change starts a run with the names and ids of the change, and the run completes', async () => {
      const host = await start()
      const event = changeEvent()
      await publishEvent(host, event)
      expect(await host.reached(event.Id, 'Completed')).toMatchObject({
        TransactionID: 'Invoice-129@2026-11-23T17:05:09Z/42',
        Realm: '42',
        InitialData: {
          provider: 'intuit',
          realm: '42',
          entity: 'Invoice',
          id: '129',
          operation: 'update',
          changedAt: '2026-11-23T17:05:09.179Z',
        },
      })
    })

    it('if twenty changes are delivered five times each, in a mixed order, each change starts one run', async () => {
      const host = await start()
      const events = Array.from({ length: 20 }, (_, n) => changeEvent({ EntityId: String(n) }))
      // Publishes each of the twenty events five times in a mixed order: `n * 7 % 100` takes each value from 0 to 99
      // once, because 7 and 100 have no common divisor.
      for (let n = 0; n < 100; n += 1) {
        const event = events[((n * 7) % 100) % 20]
        if (event !== undefined) await publishEvent(host, event)
      }
      for (const { Id } of events) await host.reached(Id, 'Completed')
      await eventually(async () => expect(await counts(host)).toEqual({ queued: 20, exists: 80 }))
      expect(await deadLetters(host)).toEqual([])
    })

    it('a redelivered change starts no second run, even if its operation or the precision of its time differs', async () => {
      const host = await start()
      const event = changeEvent()
      await publishEvent(host, event)
      await host.reached(event.Id, 'Completed')
      await publishEvent(host, changeEvent({ Operation: 'create', Source: 'change-feed' }))
      await publishEvent(host, changeEvent({ ChangedAt: '2026-11-23T17:05:09Z' }))
      await eventually(async () => expect(await counts(host)).toEqual({ queued: 1, exists: 2 }))
      expect(await deadLetters(host)).toEqual([])
    })

    it('a change of a company that is not connected starts no run, and the coordinator counts and logs it', async () => {
      const host = await start()
      host.target.on('/credentials/ACC-404', (_, response) => {
        response.writeHead(404).end('{}')
      })
      const unknown = changeEvent({ Realm: '404' })
      await publishEvent(host, unknown)
      const next = changeEvent({ EntityId: 'next' })
      await publishEvent(host, next)
      await host.reached(next.Id, 'Completed')
      await eventually(async () =>
        expect(await counts(host)).toEqual({ queued: 1, unknown_realm: 1 }),
      )
      expect(await host.source.get('Sale', unknown.Id, null)).toBeNull()
      const line = host.log.find(({ msg }) => msg.includes('not connected'))
      expect(line).toMatchObject({ transactionId: unknown.Id, realm: '404' })
    })

    it('while token-service is unavailable, change events wait in their queue, and none is lost or dead-lettered', async () => {
      const host = await start()
      let isAvailable = false
      let requests = 0
      host.target.on('/credentials/ACC-42', (_, response) => {
        requests += 1
        response.writeHead(isAvailable ? 200 : 503).end('{}')
      })
      const events = Array.from({ length: 30 }, (_, n) => changeEvent({ EntityId: String(n) }))
      for (const event of events) await publishEvent(host, event)
      await eventually(() => expect(requests).toBeGreaterThan(3))
      isAvailable = true
      for (const { Id } of events) await host.reached(Id, 'Completed')
      expect(await deadLetters(host)).toEqual([])
    })

    it('while the store is unavailable, change events wait in their queue', async () => {
      let isAvailable = false
      let tries = 0
      const host = await start({
        wrapSource: (source) => ({
          ...source,
          async queue(...input) {
            tries += 1
            if (!isAvailable) throw new IntegrationError('store_unavailable', 'stopped by the test')
            return source.queue(...input)
          },
        }),
      })
      const event = changeEvent()
      await publishEvent(host, event)
      await eventually(() => expect(tries).toBeGreaterThan(2))
      isAvailable = true
      await host.reached(event.Id, 'Completed')
    })

    it('events that cannot be read are dead-lettered with their reasons, and the next event starts its run', async () => {
      const bad: readonly (readonly [reason: string, body: unknown])[] = [
        ['malformed', 'changed'],
        ['malformed', { ...changeEvent(), Entity: 'Space.ship' }],
        ['invalid_request', { ...changeEvent(), EntityId: '130' }],
        ['payload_too_large', ' '.repeat(17_000)],
      ]
      const host = await start()
      for (const [, body] of bad)
        await publishEvent(host, changeEvent(), typeof body === 'string' ? Buffer.from(body) : body)
      const next = changeEvent({ EntityId: 'next' })
      await publishEvent(host, next)
      await host.reached(next.Id, 'Completed')
      await eventually(async () => expect(await deadLetters(host)).toHaveLength(bad.length))
      const reasons = (await deadLetters(host)).map(({ Reason }) =>
        Reason.slice(0, Reason.indexOf(': ')),
      )
      expect(reasons.toSorted()).toEqual(bad.map(([reason]) => reason).toSorted())
    })

    it('a dead-lettered change event starts its run when it is requeued after the process was fixed to accept its data', async () => {
      const strict = defineProcess('Sale', {
        on: sale.on,
        input: ProviderChange.refine(() => false, 'not now'),
      }).step('sell', (step) => step.complete())
      const before = await start({ processes: [strict] })
      const event = changeEvent()
      await publishEvent(before, event)
      await eventually(async () => expect(await deadLetters(before)).toHaveLength(1))
      await before[Symbol.asyncDispose]()
      const host = await start()
      await eventually(async () => expect(await deadLetters(host)).toHaveLength(1))
      const [letter] = await deadLetters(host)
      expect(letter?.Reason).toMatch(/^input_invalid: /)
      const path = `/processes/Sale/dead-letters/${letter?.ID}/requeue`
      expect((await host.call(path, { method: 'POST' })).status).toBe(202)
      await host.reached(event.Id, 'Completed')
      expect(await deadLetters(host)).toEqual([])
    })

    it.runIf(kind === 'real')(
      'the events of a paused process stay in their queue until the process is resumed',
      async () => {
        const host = await start()
        const post = (path: string) => host.call(`/processes/Sale/${path}`, { method: 'POST' })
        expect((await post('pause')).status).toBe(200)
        await isConsumed(host, 'Sale', 0)
        const event = changeEvent()
        await publishEvent(host, event)
        await eventually(async () =>
          expect(await host.bus.depth(onQueue('Sale'))).toMatchObject({ ready: 1 }),
        )
        expect((await post('resume')).status).toBe(200)
        await host.reached(event.Id, 'Completed')
      },
    )

    it.runIf(kind === 'embedded')(
      'the run of a change is stored before its event is acknowledged, even while the process is paused',
      async () => {
        const stored = Promise.withResolvers<void>()
        const host = await start({
          wrapSource: (source) => ({
            ...source,
            async queue(...input) {
              await stored.promise
              return source.queue(...input)
            },
          }),
        })
        const post = (path: string) => host.call(`/processes/Sale/${path}`, { method: 'POST' })
        expect((await post('pause')).status).toBe(200)
        const event = changeEvent()
        const settled: string[] = []
        const confirmed = createEventPublisher(host.bus)(event).then(() =>
          settled.push('confirmed'),
        )
        void stored.promise.then(() => settled.push('stored'))
        await eventually(async () =>
          expect(await host.bus.depth(onQueue('Sale'))).toMatchObject({ ready: 0 }),
        )
        stored.resolve()
        await confirmed
        expect(settled).toEqual(['stored', 'confirmed'])
        expect((await host.run(event.Id)).Status).toBe('Queued')
        expect((await post('resume')).status).toBe(200)
        await host.reached(event.Id, 'Completed')
      },
    )

    it('the queue on.<Process> exists as soon as the coordinator has started, also after a restart', async () => {
      const [event, next] = [changeEvent(), changeEvent({ EntityId: '130' })]
      const host = await opened.start({ processes: [sale] })
      if (kind === 'real') await isConsumed(host)
      await publishEvent(host, event)
      await host.reached(event.Id, 'Completed')
      await host[Symbol.asyncDispose]()
      const second = await opened.start({ processes: [sale] })
      await publishEvent(second, next)
      expect(await second.reached(next.Id, 'Completed')).toMatchObject({ Realm: '42' })
    })

    it('a change starts one run of each process whose member `on` names the change', async () => {
      const audit = processOf('Refund', { on: sale.on, steps: { refund: complete } })
      const host = await start({ processes: [sale, audit] })
      await isConsumed(host, 'Refund')
      const event = changeEvent()
      await publishEvent(host, event)
      await host.reached(event.Id, 'Completed')
      await eventually(async () => expect(await counts(host, 'Refund')).toEqual({ queued: 1 }))
    })

    it('the coordinator declares no queue on.<Process> for a process without the member `on`', async () => {
      const host = await start({
        processes: [processOf('Refund', { steps: { refund: complete } })],
      })
      const other = await start({ processes: [sale], source: host.source, bus: host.bus })
      await isConsumed(other)
      expect(await host.bus.depth(onQueue('Refund'))).toBeNull()
    })
  })
}
