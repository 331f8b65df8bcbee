import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { SignalResponse } from '@integration-host/shared/contracts/run'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { bearer, type Fixture, onBackends } from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'
import type { DeadLetterPage } from '@integration-host/shared/contracts/operations'
import { signalKey, START_EXCHANGE } from '@integration-host/shared/contracts/topology'

/** A bill that is paid after a person has approved it. */
const payBill = defineProcess('PayBill', { input: z.object({ amount: z.number() }) })
  .step('draft', (step) => step.complete(step.initialData.amount))
  .event('approved', { data: z.object({ approved: z.boolean() }) })
  .step('pay', (step) => step.complete(step.previous.data.approved ? step.item('draft').data : 0))

/** An event that has more than 256 KB. */
const TOO_LARGE = { Data: { approved: true, note: 'x'.repeat(262_144) } }

/** A process whose time to wait is soon over. */
const remind = defineProcess('Remind')
  .event('answer', { timeoutSeconds: 0.001, onTimeout: 'continue' })
  .step('done', (step) => step.complete([step.previous.outcome, step.previous.data]))
const expire = defineProcess('Expire').event('answer', { timeoutSeconds: 0.001 })

const keys = [
  { id: 'queuer', scopes: ['transactions:queue', 'transactions:read'], realms: ['*'] },
  { id: 'operator', scopes: ['transactions:operate', 'transactions:queue'], realms: ['*'] },
  { id: 'approver', scopes: ['transactions:signal'], realms: ['42'] },
]

/** Tests of events, from the API to the run. All backends must pass these tests. */
export function signalsContract(kind: 'embedded' | 'real'): void {
  describe(`events on ${kind} backends`, () => {
    const { start } = onBackends(
      kind,
      { PayBill: ['draft', 'approved', 'pay'], Remind: ['answer', 'done'], Expire: ['answer'] },
      { processes: [payBill, remind, expire], keys },
    )
    const signal = (host: Fixture, id: string, body: object, key?: string, name = 'approved') =>
      host.call(
        `/processes/PayBill/transactions/${id}/events/${name}`,
        postJson(body, key === undefined ? {} : bearer(key)),
      )
    const codeOf = async (response: Promise<Response>): Promise<string> => {
      const problem = (await (await response).json()) as { code: string }
      return problem.code
    }
    const yes = { Data: { approved: true }, Reason: 'it is right' }

    it.each(['message', 'inline'] as const)(
      'a run waits for its event without occupying a worker, and then goes on (dispatch: %s)',
      async (dispatch) => {
        const host = await start({ dispatch })
        await host.queue('1', { amount: 5 })
        const waiting = await host.reached('1', 'Waiting')
        expect(waiting).toMatchObject({ StepName: 'approved', WaitingFor: 'event:approved' })
        const response = await signal(host, '1', yes)
        expect(response.status).toBe(200)
        const { Item } = SignalResponse.parse(await response.json())
        expect(Item).toMatchObject({
          StepName: 'approved',
          Status: 'Completed',
          Data: { approved: true },
          Sender: { KeyID: expect.any(String), Reason: 'it is right' },
        })
        const done = await host.reached('1', 'Completed')
        expect(done.Items.map(({ StepName, Data }) => [StepName, Data])).toEqual([
          ['draft', 5],
          ['approved', { approved: true }],
          ['pay', 5],
        ])
        expect(done.Attempts.map(({ StepName }) => StepName)).toEqual(['draft', 'pay'])
      },
    )

    it('an event that arrives before the run gets there is kept', async () => {
      const host = await start()
      await host.queue('1', { amount: 5 })
      const response = await signal(host, '1', yes)
      expect(response.status).toBe(200)
      await host.reached('1', 'Completed')
    })

    it('a repetition gets the first event, and another event is rejected and shown the first one', async () => {
      const host = await start()
      await host.queue('1', { amount: 5 })
      await host.reached('1', 'Waiting')
      expect((await signal(host, '1', { ...yes, EventID: 'e1' })).status).toBe(200)
      await host.reached('1', 'Completed')
      expect((await signal(host, '1', { Data: { approved: true } })).status).toBe(200)
      const no = { Data: { approved: false } }
      expect((await signal(host, '1', { ...no, EventID: 'e1' })).status).toBe(200)
      const other = await signal(host, '1', no)
      expect(other.status).toBe(409)
      expect(await other.json()).toMatchObject({
        code: 'event_already_received',
        Item: { Data: { approved: true }, Sender: { EventID: 'e1' } },
      })
    })

    /** Queues a run that does not start during the test. */
    const queueLater = (host: Fixture, id: string) =>
      host.call(
        '/processes/PayBill/transactions',
        postJson({
          TransactionID: id,
          InitialData: { amount: 5 },
          NotBefore: new Date(Date.now() + 3_600_000).toISOString(),
        }),
      )

    it('of two events before the place, the second one is rejected and shown the first one', async () => {
      const host = await start()
      await queueLater(host, '1')
      expect((await signal(host, '1', yes)).status).toBe(200)
      const second = await signal(host, '1', { Data: { approved: false } })
      expect(second.status).toBe(409)
      expect(await second.json()).toMatchObject({
        code: 'event_already_received',
        Item: { Status: 'Received', Data: { approved: true } },
      })
    })

    it('an event that is too large is rejected, and the run goes on waiting', async () => {
      const host = await start()
      await host.queue('1', { amount: 5 })
      await host.reached('1', 'Waiting')
      const response = await signal(host, '1', TOO_LARGE)
      expect(response.status).toBe(413)
      expect(await codeOf(Promise.resolve(response))).toBe('payload_too_large')
      expect(await host.run('1')).toMatchObject({ Status: 'Waiting' })
    })

    it('an event is rejected if it is unknown, if its data is not valid, and if the run is over', async () => {
      const host = await start()
      await host.queue('1', { amount: 5 })
      await host.reached('1', 'Waiting')
      expect(await codeOf(signal(host, '1', yes, undefined, 'draft'))).toBe('event_not_found')
      const unknown = await signal(host, '1', yes, undefined, 'other')
      expect(await unknown.json()).toMatchObject({
        code: 'event_not_found',
        detail: expect.stringMatching(/ has no event other: its events are approved/),
      })
      expect(await codeOf(signal(host, '2', yes))).toBe('transaction_not_found')
      expect(await codeOf(signal(host, '1', { Data: { approved: 'yes' } }))).toBe('input_invalid')
      expect(await codeOf(signal(host, '1', { Approved: true }))).toBe('invalid_request')
      const path = '/processes/PayBill/transactions/1'
      expect(await codeOf(host.call(`${path}/retry`, { method: 'POST' }))).toBe(
        'transaction_not_retryable',
      )
      expect(await host.run('1')).toMatchObject({ Status: 'Waiting' })
      await host.call(`${path}/cancel`, { method: 'POST' })
      expect(await codeOf(signal(host, '1', yes))).toBe('transaction_not_active')
      await host.call(`${path}/resume`, { method: 'POST' })
      await host.reached('1', 'Waiting')
      expect((await signal(host, '1', yes)).status).toBe(200)
      await host.reached('1', 'Completed')
    })

    it('only a key with transactions:signal sends events, and only to runs of its realms', async () => {
      const host = await start()
      await host.queue('1', { amount: 5 }, '42')
      await host.queue('2', { amount: 5 }, '43')
      await host.reached('1', 'Waiting')
      expect((await signal(host, '1', yes, 'queuer')).status).toBe(403)
      expect((await signal(host, '1', yes, 'operator')).status).toBe(403)
      expect((await signal(host, '2', yes, 'approver')).status).toBe(403)
      const response = await signal(host, '1', yes, 'approver')
      expect(response.status).toBe(200)
      const { Item } = SignalResponse.parse(await response.json())
      // The key may not read data.
      expect(Item).toEqual({
        StepName: 'approved',
        Status: 'Completed',
        FinishedAt: expect.any(String),
        Sender: { KeyID: 'approver', Person: null, Reason: 'it is right', EventID: null },
      })
    })

    const send = (host: Fixture, body: object, routingKey = signalKey('PayBill')) =>
      host.bus.publish({
        exchange: START_EXCHANGE,
        routingKey,
        messageId: crypto.randomUUID(),
        type: '',
        body,
        mandatory: true,
      })
    const deadLetters = async (host: Fixture): Promise<readonly string[]> => {
      const response = await host.call('/processes/PayBill/dead-letters?limit=100')
      return ((await response.json()) as DeadLetterPage).items.map(({ Reason }) => Reason)
    }

    it('a message sends an event, also if it has overtaken the message that starts the run', async () => {
      const host = await start()
      await send(host, { TransactionID: '1', Event: 'approved', Data: { approved: true } })
      const started = { TransactionID: '1', InitialData: { amount: 5 } }
      await send(host, started, 'PayBill')
      const done = await host.reached('1', 'Completed')
      expect(done.Items[1]).toMatchObject({ Sender: { KeyID: 'rabbitmq' } })
    })

    it('a message whose event is rejected is dead-lettered with the reason', async () => {
      const host = await start()
      await host.queue('1', { amount: 5 })
      await host.reached('1', 'Waiting')
      await send(host, { TransactionID: '1', Event: 'other' })
      await send(host, { TransactionID: '1', Event: 'approved', Data: 1 })
      await send(host, { Event: 'approved' })
      await send(host, { TransactionID: '1', Event: 'approved', ...TOO_LARGE })
      await queueLater(host, '2')
      await signal(host, '2', yes)
      await send(host, { TransactionID: '2', Event: 'approved', Data: { approved: false } })
      await queueLater(host, '3')
      await host.call('/processes/PayBill/transactions/3/cancel', { method: 'POST' })
      await send(host, { TransactionID: '3', Event: 'approved', ...yes })
      await eventually(async () =>
        expect((await deadLetters(host)).toSorted()).toEqual([
          'event_already_received',
          'event_not_found',
          expect.stringMatching(/^input_invalid: Data: /),
          expect.stringMatching(/^invalid_request: TransactionID: /),
          expect.stringMatching(/^payload_too_large: /),
          'transaction_not_active',
        ]),
      )
      expect(await host.run('1')).toMatchObject({ Status: 'Waiting' })
    })

    it('a dead-lettered event is sent again when it is requeued, by a key that may send events', async () => {
      const strict = defineProcess('PayBill')
        .step('draft', (step) => step.complete())
        .event('approved', { data: z.object({ other: z.string() }) })
        .step('pay', (step) => step.complete())
      const before = await start({ processes: [strict] })
      await before.queue('1', { amount: 5 })
      await before.reached('1', 'Waiting')
      const sent = {
        TransactionID: '1',
        Event: 'approved',
        EventID: 'e1',
        Data: { approved: true },
      }
      await send(before, sent)
      // An account that may start runs must not send events, so only the queue tells what the message is.
      await send(before, { ...sent, EventID: 'e2' }, 'PayBill')
      const letters = async (host: Fixture) => {
        const response = await host.call('/processes/PayBill/dead-letters?limit=10')
        return ((await response.json()) as DeadLetterPage).items
      }
      await eventually(async () => expect(await letters(before)).toHaveLength(2))
      await before[Symbol.asyncDispose]()
      const host = await start()
      const found = await letters(host)
      const event = found.find(({ TransactionID }) => TransactionID === '1')
      const forged = found.find(({ TransactionID }) => TransactionID === null)
      expect(event).toMatchObject({ StepName: 'approved', ReplayID: null })
      const requeue = (ID: number | undefined, key?: string) =>
        host.call(`/processes/PayBill/dead-letters/${ID}/requeue`, {
          method: 'POST',
          headers: key === undefined ? {} : bearer(key),
        })
      expect(await codeOf(requeue(forged?.ID))).toBe('dead_letter_without_run')
      expect(await codeOf(requeue(event?.ID, 'operator'))).toBe('forbidden')
      expect((await requeue(event?.ID)).status).toBe(202)
      const done = await host.reached('1', 'Completed')
      expect(done.Items[1]).toMatchObject({ Data: { approved: true }, Sender: { EventID: 'e1' } })
      expect(await letters(host)).toHaveLength(1)
    })

    it('a run whose time is over goes on without data, or fails as event_timeout', async () => {
      const host = await start()
      for (const process of ['Remind', 'Expire'])
        await host.call(`/processes/${process}/transactions`, {
          method: 'POST',
          headers: { 'Content-Type': 'application/json' },
          body: JSON.stringify({ TransactionID: '1', InitialData: null }),
        })
      const read = async (process: string) =>
        (await host.call(`/processes/${process}/transactions/1`)).json()
      await expect
        .poll(() => read('Remind'), { timeout: 10_000 })
        .toMatchObject({
          Status: 'Completed',
          Items: [{ Data: null }, { StepName: 'done', Data: ['timed_out', null] }],
        })
      await expect
        .poll(() => read('Expire'), { timeout: 10_000 })
        .toMatchObject({
          Status: 'Failed',
          ErrorClass: 'event_timeout',
        })
    })
  })
}
