import type { DeadLetterPage } from '@integration-host/shared/contracts/operations'
import { START_EXCHANGE, startQueue } from '@integration-host/shared/contracts/topology'
import { IntegrationError } from '@integration-host/shared/errors'
import type { OutgoingMessage } from '@integration-host/shared/messaging/message-bus'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type Fixture, onBackends } from '../../test-support/fixture.ts'
import { processOf } from '../../test-support/process-of.ts'
import type { Step } from '../step/step.ts'

const complete = (step: Step): void => void step.complete()
export const sale = processOf('Sale', { steps: { sell: complete } })
export const refund = processOf('Refund', {
  input: z.object({ amount: z.number() }),
  steps: { refund: complete },
})

/**
 * Messages from which no run can be queued: description, body, the reason of the dead letter, and the message id if it
 * matters. The transaction itself is checked as that of a request is (routes.test.ts).
 */
const invalid: readonly (readonly [string, Buffer | string, RegExp, string?])[] = [
  ['no JSON', 'order 66', /^malformed: the message is not JSON$/],
  ['an empty body', '', /^malformed: the message is empty$/],
  ['invalid UTF-8', Buffer.from([0x22, 0xff, 0x22]), /^malformed: the message is not UTF-8$/],
  ['an array', '[{"TransactionID":"1","InitialData":1}]', /^malformed: .* not a JSON object$/],
  ['10 MB', Buffer.alloc(10_000_000, 0x20), /^payload_too_large: may have at most 262144 bytes$/],
  [
    '10,000 levels',
    `{"InitialData":${'['.repeat(10_000)}${']'.repeat(10_000)}}`,
    /^invalid_request: JSON may be nested at most 1000 levels/,
  ],
  [
    'a number of 250,000 digits',
    `{"InitialData":1.${'0'.repeat(250_000)}1}`,
    /^invalid_request: a number in JSON may have at most 400 characters$/,
  ],
  [
    '25,001 elements',
    `{"InitialData":[${'1,'.repeat(25_000)}1]}`,
    /^invalid_request: JSON may have at most 25000 members and elements$/,
  ],
  [
    '900 levels',
    `{"InitialData":${'['.repeat(900)}${']'.repeat(900)}}`,
    /^invalid_request: InitialData: may have 100 levels/,
  ],
  [
    'U+0000 after 120,000 backslashes',
    `{"InitialData":"${'\\\\'.repeat(120_000)}\\u0000"}`,
    /^invalid_request: .* must not contain U\+0000/,
  ],
  ['no InitialData', '{"TransactionID":"1"}', /^invalid_request: InitialData: is missing$/],
  ['__proto__', '{"InitialData":1,"__proto__":{}}', /^invalid_request: .*__proto__/],
  ['no id at all', '{"InitialData":1}', /^invalid_request: TransactionID: is missing/, ''],
  ['an unusable message id', '{"InitialData":1}', /\(TransactionID is the message id\)$/, '..'],
]

/** Headers whose values are lists, as other programs may send them. */
const copies = (headers: object): Pick<OutgoingMessage, 'headers'> =>
  ({ headers }) as unknown as Pick<OutgoingMessage, 'headers'>

/** Tests of start messages, from the queue to the run. All backends must pass these tests. */
export function startMessagesContract(kind: 'embedded' | 'real'): void {
  describe(`start messages on ${kind} backends`, () => {
    const opened = onBackends(
      kind,
      { Sale: ['sell'], Refund: ['refund'] },
      { processes: [sale, refund] },
    )

    const { start } = opened
    const send = (
      host: Fixture,
      body: unknown,
      message: Partial<OutgoingMessage> = {},
    ): Promise<void> =>
      host.bus.publish({
        exchange: START_EXCHANGE,
        routingKey: 'Sale',
        messageId: crypto.randomUUID(),
        type: '',
        body: typeof body === 'string' ? Buffer.from(body) : body,
        mandatory: true,
        ...message,
      })
    const depth = (host: Fixture, process = 'Sale') => host.bus.depth(startQueue(process))
    const deadLetters = async (host: Fixture, process = 'Sale') => {
      const response = await host.call(`/processes/${process}/dead-letters?limit=100`)
      return ((await response.json()) as DeadLetterPage).items
    }
    /** Returns how many messages were counted with each result. */
    const counts = async (host: Fixture): Promise<Record<string, number>> => {
      const text = await (await host.call('/metrics')).text()
      const lines = text.matchAll(/^coordinator_start_messages_total\{(.*?)\} (\d+)$/gm)
      return Object.fromEntries(
        [...lines].map(([, labels = '', count]) => [
          /result="(\w+)"/.exec(labels)?.[1] ?? '',
          Number(count),
        ]),
      )
    }

    it('a start message with the body of an HTTP request starts a run, and the run completes', async () => {
      const host = await start()
      const body = { TransactionID: '66', InitialData: { n: 1 }, Realm: '42', Tags: { shop: 'a' } }
      await send(host, body)
      expect(await host.reached('66', 'Completed')).toMatchObject(body)
      await eventually(async () => expect(await depth(host)).toMatchObject({ ready: 0 }))
      expect(await counts(host)).toEqual({ queued: 1 })
    })

    it('the message id of a start message becomes the TransactionID if the body has none', async () => {
      const host = await start()
      await send(host, { InitialData: 1 }, { messageId: 'invoice-7' })
      expect(await host.reached('invoice-7', 'Completed')).toMatchObject({ InitialData: 1 })
    })

    it('a start message may begin with a byte order mark, as an HTTP request may', async () => {
      const host = await start()
      await send(host, '\ufeff{"TransactionID":"bom","InitialData":1}')
      expect(await host.reached('bom', 'Completed')).toMatchObject({ InitialData: 1 })
    })

    it('a start message that is published five times starts one run', async () => {
      const host = await start()
      for (let n = 0; n < 5; n += 1)
        await send(host, { InitialData: { n: 1 } }, { messageId: 'same' })
      await host.reached('same', 'Completed')
      await eventually(async () => expect(await counts(host)).toEqual({ queued: 1, exists: 4 }))
      expect(await deadLetters(host)).toEqual([])
    })

    it('a start message is dead-lettered if a transaction with its id exists and has different data', async () => {
      const host = await start()
      await send(host, { TransactionID: '1', InitialData: 1 })
      await host.reached('1', 'Completed')
      await send(host, { TransactionID: '1', InitialData: 2 })
      await eventually(async () =>
        expect(await deadLetters(host)).toMatchObject([{ Reason: 'transaction_conflict' }]),
      )
      expect(await host.run('1')).toMatchObject({ InitialData: 1 })
    })

    it('if the data of a start message does not match the input schema, the dead letter names the path but not the value', async () => {
      const host = await start()
      await send(
        host,
        { TransactionID: '1', InitialData: { amount: 'secret' } },
        { routingKey: 'Refund' },
      )
      await eventually(async () => expect(await deadLetters(host, 'Refund')).toHaveLength(1))
      const [letter] = await deadLetters(host, 'Refund')
      expect(letter?.Reason).toMatch(/^input_invalid: InitialData\.amount: /)
      expect(letter?.Reason).not.toContain('secret')
    })

    it.each(invalid.map(([name, body, reason, messageId]) => ({ name, body, reason, messageId })))(
      'a start message with $name is dead-lettered, and the next message starts its run',
      async ({ body, reason, messageId }) => {
        const host = await start()
        await send(host, body, { messageId: messageId ?? crypto.randomUUID() })
        await send(host, { TransactionID: 'next', InitialData: 1 })
        await host.reached('next', 'Completed')
        await eventually(async () => expect(await deadLetters(host)).toHaveLength(1))
        const [letter] = await deadLetters(host)
        expect(letter?.Reason).toMatch(reason)
        expect(letter?.ContentBytes).toBe(Buffer.from(body).length)
        await eventually(async () => expect(await depth(host)).toMatchObject({ ready: 0 }))
      },
    )

    it('requeueing a dead-lettered start message queues its transaction under its message id, and deletes the dead letter', async () => {
      let isBroken = true
      const host = await start({
        wrapSource: (source) => ({
          ...source,
          async queue(...input) {
            if (isBroken) throw new TypeError('stopped by the test')
            return source.queue(...input)
          },
        }),
      })
      await send(host, { InitialData: 7 }, { messageId: 'by-id' })
      await eventually(async () => expect(await deadLetters(host)).toHaveLength(1))
      isBroken = false
      const [letter] = await deadLetters(host)
      const requeue = () =>
        host.call(`/processes/Sale/dead-letters/${letter?.ID}/requeue`, { method: 'POST' })
      const response = await requeue()
      expect(response.status).toBe(202)
      expect(await response.json()).toMatchObject({ TransactionID: 'by-id', InitialData: 7 })
      expect(await host.reached('by-id', 'Completed')).toMatchObject({ InitialData: 7 })
      expect(await deadLetters(host)).toEqual([])
      expect((await requeue()).status).toBe(404)
    })

    it.each([
      ['that is not JSON', 'order 66', 409, 'dead_letter_without_run'],
      [
        'of more than 64 KiB',
        `{"InitialData":"${'x'.repeat(300_000)}"}`,
        409,
        'dead_letter_without_run',
      ],
      [
        'with other data of an existing id',
        '{"TransactionID":"1","InitialData":2}',
        409,
        'transaction_conflict',
      ],
    ])(
      'a start message %s stays a dead letter when its requeueing is rejected',
      async (_, body, status, code) => {
        const host = await start()
        await host.queue('1', 1)
        await send(host, body)
        await eventually(async () => expect(await deadLetters(host)).toHaveLength(1))
        const [letter] = await deadLetters(host)
        const at = `/processes/Sale/dead-letters/${letter?.ID}`
        const response = await host.call(`${at}/requeue`, { method: 'POST' })
        expect(response.status).toBe(status)
        expect(await response.json()).toMatchObject({ code })
        expect(await deadLetters(host)).toHaveLength(1)
        expect((await host.call(at, { method: 'DELETE' })).status).toBe(204)
      },
    )

    it('a start message with the header CC is dead-lettered in each queue that it reached, starts no run, and cannot be requeued', async () => {
      const host = await start()
      const body = { TransactionID: 'copied', InitialData: { amount: 1 } }
      await send(host, body, copies({ CC: ['Refund'] }))
      await send(host, body, { ...copies({ CC: [] }), routingKey: 'Refund' })
      await send(host, { TransactionID: 'next', InitialData: 1 })
      await host.reached('next', 'Completed')
      const reason = 'misaddressed: the headers CC and BCC are not allowed'
      const reasons = async (process: string) =>
        (await deadLetters(host, process)).map(({ Reason }) => Reason)
      // The in-process bus of the embedded host does not route by CC, so the copy for Refund does not exist there.
      const ofRefund = kind === 'real' ? [reason, reason] : [reason]
      await eventually(async () => expect(await reasons('Sale')).toEqual([reason]))
      await eventually(async () => expect(await reasons('Refund')).toEqual(ofRefund))
      const [letter] = await deadLetters(host)
      const at = `/processes/Sale/dead-letters/${letter?.ID}/requeue`
      const response = await host.call(at, { method: 'POST' })
      expect(response.status).toBe(409)
      expect(await response.json()).toMatchObject({ code: 'dead_letter_without_run' })
      for (const process of ['Sale', 'Refund'])
        expect((await host.call(`/processes/${process}/transactions/copied`)).status).toBe(404)
    })

    it('a start message that has passed a dead-letter exchange or names another header starts a run', async () => {
      const host = await start()
      const death = { queue: 'later', reason: 'expired', exchange: '', 'routing-keys': ['Sale'] }
      const headers = { 'x-death': [death], 'x-first-death-queue': 'later', cc: 'Refund' }
      await send(host, { TransactionID: '1', InitialData: 1 }, copies(headers))
      await host.reached('1', 'Completed')
      expect(await deadLetters(host)).toEqual([])
    })

    it.runIf(kind === 'real')(
      'the start messages of a paused process stay in their queue until the process is resumed',
      async () => {
        const host = await start()
        await eventually(async () => expect(await depth(host)).toMatchObject({ consumers: 1 }))
        const post = (path: string) => host.call(`/processes/Sale/${path}`, { method: 'POST' })
        expect((await post('pause')).status).toBe(200)
        await eventually(async () => expect(await depth(host)).toMatchObject({ consumers: 0 }))
        await send(host, { TransactionID: '1', InitialData: 1 })
        await eventually(async () => expect(await depth(host)).toMatchObject({ ready: 1 }))
        expect((await post('resume')).status).toBe(200)
        await host.reached('1', 'Completed')
      },
    )

    it('while the store is unavailable, start messages stay in their queue, and none is lost or dead-lettered', async () => {
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
      const ids = Array.from({ length: 400 }, (_, n) => `id-${n}`)
      for (const id of ids) await send(host, { TransactionID: id, InitialData: 1 })
      await eventually(() => expect(tries).toBeGreaterThan(3))
      // The coordinator has cancelled its consumer, so the messages beyond its prefetch count stay in the queue.
      expect((await depth(host))?.ready).toBeGreaterThanOrEqual(150)
      isAvailable = true
      await eventually(async () => expect(await counts(host)).toEqual({ queued: 400 }), {
        seconds: 20,
      })
      expect(await deadLetters(host)).toEqual([])
    })

    it('the coordinator consumes only the start queues of the processes that it has loaded', async () => {
      const both = await start()
      await eventually(async () =>
        expect(await depth(both, 'Refund')).toMatchObject({ consumers: 1 }),
      )
      const { source, bus } = both
      const body = { TransactionID: '1', InitialData: { amount: 1 } }
      await start({ processes: [sale], source, bus })
      await eventually(async () =>
        expect(await depth(both, 'Sale')).toMatchObject({ consumers: 2 }),
      )
      expect(await depth(both, 'Refund')).toMatchObject({ consumers: 1 })
      await send(both, body, { routingKey: 'Refund' })
      await eventually(async () =>
        expect((await both.call('/processes/Refund/transactions/1')).status).toBe(200),
      )
    })

    it('the start messages of a process that is no longer loaded stay in their queue until the process is loaded again', async () => {
      const source = opened.use(await opened.backends().openSource())
      const bus = opened.use(await opened.backends().openBus())
      await bus.ready(AbortSignal.timeout(60_000))
      // The first coordinator declares the queues and is then closed.
      const first = await start({ source, bus })
      await first[Symbol.asyncDispose]()
      const without = await start({ processes: [sale], source, bus })
      const body = { TransactionID: '1', InitialData: { amount: 1 } }
      await send(without, body, { routingKey: 'Refund' })
      await send(without, { TransactionID: 'other', InitialData: 1 })
      await without.reached('other', 'Completed')
      await eventually(async () =>
        expect(await depth(without, 'Refund')).toEqual({ ready: 1, consumers: 0 }),
      )
      const again = await start({ source, bus })
      await eventually(async () =>
        expect((await again.call('/processes/Refund/transactions/1')).status).toBe(200),
      )
    })

    it('a start message with Priority starts a run with this priority, and so does a line of a bulk request', async () => {
      const host = await start()
      await send(host, { TransactionID: 'message', InitialData: 1, Priority: 'high' })
      const lines = [
        { TransactionID: 'line', InitialData: 1, Priority: 'high' },
        { TransactionID: 'normal', InitialData: 1 },
        { TransactionID: 'wrong', InitialData: 1, Priority: 'urgent' },
      ]
      const response = await host.call('/processes/Sale/transactions/bulk', postJson(lines))
      expect(await response.json()).toMatchObject({
        results: [{ outcome: 'queued' }, { outcome: 'queued' }, { outcome: 'invalid' }],
      })
      await eventually(async () => {
        const found = await host.call('/processes/Sale/transactions?priority=high')
        const { items } = (await found.json()) as {
          readonly items: readonly { readonly TransactionID: string }[]
        }
        const ids = items.map(({ TransactionID }) => TransactionID)
        expect(ids.toSorted((a, b) => (a < b ? -1 : 1))).toEqual(['line', 'message'])
      })
    })

    it('a start message with NotBefore starts a delayed run, like an HTTP request with NotBefore', async () => {
      const host = await start()
      await send(host, { TransactionID: 'later', InitialData: 1, NotBefore: 3_600 })
      const run = await host.reached('later', 'Queued')
      expect(run).toMatchObject({ NextAttemptAt: expect.stringMatching(/Z$/) })
      expect(Date.parse(run.NextAttemptAt ?? '') - Date.now()).toBeGreaterThan(3_000_000)
    })

    it('a start message whose transaction makes the store fail is dead-lettered; other messages of its batch start runs', async () => {
      const host = await start({
        wrapSource: (source) => ({
          ...source,
          async queue(process, transactions, by) {
            if (transactions.some(({ TransactionID }) => TransactionID === 'bad'))
              throw new TypeError('stopped by the test')
            return source.queue(process, transactions, by)
          },
        }),
      })
      for (const TransactionID of ['1', 'bad', '2'])
        await send(host, { TransactionID, InitialData: 1 })
      await host.reached('1', 'Completed')
      await host.reached('2', 'Completed')
      await eventually(async () =>
        expect(await deadLetters(host)).toMatchObject([{ Reason: 'failed: unexpected error' }]),
      )
    })
  })
}
