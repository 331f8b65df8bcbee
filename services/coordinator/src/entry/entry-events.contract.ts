import type { DeadLetterPage } from '@integration-host/shared/contracts/operations'
import {
  entriesQueue,
  type EntryEvent,
  entryEventId,
  entryRoutingKey,
  PROVIDER_EXCHANGE,
} from '@integration-host/shared/contracts/provider-event'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { type Fixture, onBackends } from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'
import { EntryChange } from '../step/entry-trigger.ts'

const audit = defineProcess('Audit', {
  input: EntryChange,
  on: [{ entry: ['changed', 'deleted'], entity: 'Invoice' }],
}).step('note', (step) => step.complete())

const eventOf = (change: Partial<Omit<EntryEvent, 'Id'>> = {}): EntryEvent => {
  const event = {
    Realm: '42',
    Entity: 'Invoice',
    EntityID: '129',
    Kind: 'changed' as const,
    State: 'ChangedOutside',
    Changed: ['DocNumber'],
    At: '2026-11-23T17:05:09.179Z',
    EntryID: 'e1',
    Process: 'InvoiceExport',
    TransactionID: 'A-1',
    ReplayID: 0,
    StepName: 'create',
    ...change,
  }
  return { ...event, Id: entryEventId(event) }
}

/** Tests how changes of what runs have written start runs. All backends must pass these tests. */
export function entryEventsContract(kind: 'embedded' | 'real'): void {
  describe(`runs that changed entries start on ${kind} backends`, () => {
    const opened = onBackends(kind, { Audit: ['note'] })

    const start = async (definition = audit): Promise<Fixture> => {
      const host = await opened.start({ processes: [definition] })
      await eventually(async () =>
        expect(await host.bus.depth(entriesQueue('Audit'))).toMatchObject({ consumers: 1 }),
      )
      return host
    }
    const publish = (host: Fixture, event: EntryEvent, body: unknown = event) =>
      host.bus.publish({
        exchange: PROVIDER_EXCHANGE,
        routingKey: entryRoutingKey(event),
        messageId: event.Id,
        type: entryRoutingKey(event),
        body,
        mandatory: true,
      })
    const deadLetters = async (host: Fixture) => {
      const response = await host.call('/processes/Audit/dead-letters?limit=100')
      return ((await response.json()) as DeadLetterPage).items
    }

    it('an event starts one run with names and ids, however often it is delivered', async () => {
      const host = await start()
      const event = eventOf()
      for (let n = 0; n < 3; n += 1) await publish(host, event)
      await publish(host, { ...event, Changed: ['DocNumber', 'PrivateNote'] })
      expect(await host.reached(event.Id, 'Completed')).toMatchObject({
        TransactionID: 'entry-Invoice-129:changed@2026-11-23T17:05:09Z/42',
        Realm: '42',
        InitialData: {
          realm: '42',
          entity: 'Invoice',
          id: '129',
          entry: 'changed',
          state: 'ChangedOutside',
          changed: ['DocNumber'],
          process: 'InvoiceExport',
          transaction: 'A-1',
        },
      })
      const next = eventOf({ Kind: 'deleted', State: 'Deleted' })
      await publish(host, next)
      await host.reached(next.Id, 'Completed')
      expect(await deadLetters(host)).toEqual([])
    })

    it('events that cannot be read are dead-lettered with their reasons, and the next event starts its run', async () => {
      const bad: readonly (readonly [reason: string, body: unknown])[] = [
        ['malformed', 'changed'],
        ['malformed', ''],
        ['malformed', { ...eventOf(), Kind: 'moved' }],
        ['malformed', { ...eventOf(), EntityID: 'a b' }],
        ['malformed', { ...eventOf(), Realm: '4/2' }],
        ['malformed', { ...eventOf(), At: 'yesterday' }],
        ['malformed', { ...eventOf(), Changed: 'DocNumber' }],
        ['invalid_request', { ...eventOf(), EntityID: '130' }],
        ['misaddressed', eventOf({ Entity: 'Bill' })],
        ['payload_too_large', ' '.repeat(66_000)],
      ]
      const host = await start()
      for (const [, body] of bad)
        await publish(host, eventOf(), typeof body === 'string' ? Buffer.from(body) : body)
      const next = eventOf({ EntityID: 'next' })
      await publish(host, next)
      await host.reached(next.Id, 'Completed')
      await eventually(async () => expect(await deadLetters(host)).toHaveLength(bad.length))
      const letters = await deadLetters(host)
      const reasons = letters.map(({ Reason }) => Reason.slice(0, Reason.indexOf(': ')))
      expect(reasons.toSorted()).toEqual(bad.map(([reason]) => reason).toSorted())
      expect(letters.every(({ TransactionID }) => TransactionID === null)).toBe(true)
    })

    it('a dead-lettered event starts its run when it is requeued after the process was fixed', async () => {
      const strict = defineProcess('Audit', {
        on: audit.entryOn,
        input: EntryChange.refine(() => false, 'not now'),
      }).step('note', (step) => step.complete())
      const before = await start(strict)
      const event = eventOf()
      await publish(before, event)
      await eventually(async () => expect(await deadLetters(before)).toHaveLength(1))
      await before[Symbol.asyncDispose]()
      const host = await start()
      await eventually(async () => expect(await deadLetters(host)).toHaveLength(1))
      const [letter] = await deadLetters(host)
      expect(letter?.Reason).toMatch(/^input_invalid: /)
      const path = `/processes/Audit/dead-letters/${letter?.ID}/requeue`
      expect((await host.call(path, { method: 'POST' })).status).toBe(202)
      await host.reached(event.Id, 'Completed')
      expect(await deadLetters(host)).toEqual([])
    })
  })
}
