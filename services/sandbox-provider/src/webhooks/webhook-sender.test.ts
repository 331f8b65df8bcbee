import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createManualClock, type ManualClock } from '../../test-support/manual-clock.ts'
import {
  startWebhookTarget,
  VERIFIER_TOKEN,
  type WebhookTarget,
} from '../../test-support/webhook-target.ts'
import type { BookChange } from './notification.ts'
import { createWebhookSender, type WebhookSender, type WebhookSettings } from './webhook-sender.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

let clock: ManualClock
let target: WebhookTarget
let sender: WebhookSender
/**
 * The random numbers that the sender gets, in order. When they are used up, the sender gets 0.5.
 */
let random: number[]

beforeEach(async () => {
  clock = createManualClock()
  target = await startWebhookTarget()
  random = []
  let lastId = 0
  sender = createWebhookSender({
    url: target.url,
    token: new Secret(VERIFIER_TOKEN),
    clock,
    fetch,
    random: () => random.shift() ?? 0.5,
    newId: () => `id-${++lastId}`,
  })
})
afterEach(async () => {
  await sender[Symbol.asyncDispose]()
  await target[Symbol.asyncDispose]()
})

const change = (id: string, more: Partial<BookChange> = {}): BookChange => ({
  realm: '9341453908059889',
  entity: 'BillPayment',
  id,
  operation: 'update',
  changedAt: clock.now(),
  ...more,
})
const cloudEventOf = (id: string) => `9341453908059889/billpayment/${id}/updated`

/** Reports changes of objects, and advances the clock until the sender sends them. */
function report(ids: readonly string[], settings: Partial<WebhookSettings> = {}): void {
  sender.change(settings)
  for (const id of ids) sender.onChange(change(id))
  clock.advance(100)
}

const changesReceived = (): readonly string[] => target.deliveries.flatMap(({ changes }) => changes)
const attempted = (attempts: number) =>
  eventually(() => expect(sender.counts().attempts).toBe(attempts))

describe('the webhooks of the sandbox', () => {
  it('the sandbox sends changes that occur within a short time as one signed notification', async () => {
    report(['1', '2'])
    await attempted(1)
    expect(target.deliveries).toMatchObject([
      { isSigned: true, changes: [cloudEventOf('1'), cloudEventOf('2')] },
    ])
    expect(target.deliveries[0]?.headers['content-type']).toBe('application/cloudevents+json')
    expect(target.deliveries[0]?.document).toMatchObject([
      { specversion: '1.0', id: 'id-1', time: '2026-11-23T17:05:09.000000000Z', data: {} },
      { id: 'id-2' },
    ])
    expect(sender.counts()).toMatchObject({ changes: 2, delivered: 1, waiting: 0 })
  })

  it('a notification of the sandbox contains at most 100 changes', async () => {
    report(Array.from({ length: 250 }, (_, index) => String(index)))
    await attempted(3)
    expect(
      target.deliveries.map(({ changes }) => changes.length).toSorted((a, b) => b - a),
    ).toEqual([100, 100, 50])
  })

  it('a notification of the sandbox in the legacy format groups the changes by company', async () => {
    sender.change({ format: 'legacy' })
    sender.onChange(change('1'))
    sender.onChange(change('2', { realm: '7', operation: 'merge', deletedId: '9' }))
    sender.onChange(change('3'))
    clock.advance(100)
    await attempted(1)
    expect(target.deliveries[0]?.document).toEqual({
      eventNotifications: [
        {
          realmId: '9341453908059889',
          dataChangeEvent: {
            entities: ['1', '3'].map((id) => ({
              name: 'BillPayment',
              id,
              operation: 'Update',
              lastUpdated: '2026-11-23T17:05:09.000Z',
            })),
          },
        },
        {
          realmId: '7',
          dataChangeEvent: {
            entities: [
              {
                name: 'BillPayment',
                id: '2',
                operation: 'Merge',
                lastUpdated: '2026-11-23T17:05:09.000Z',
                deletedId: '9',
              },
            ],
          },
        },
      ],
    })
  })

  it("the sandbox repeats a webhook with the same event ids by Intuit's schedule until the receiver responds 200", async () => {
    target.respond(503)
    report(['1'])
    const pauses = [10, 20, 30, 5 * 60, 20 * 60, 2 * 3_600, 4 * 3_600, 6 * 3_600, 6 * 3_600]
    for (const [index, pause] of pauses.entries()) {
      await attempted(index + 1)
      expect(clock.pending()).toEqual([pause * SECOND])
      clock.advance(pause * SECOND)
    }
    await attempted(pauses.length + 1)
    target.respond(200)
    clock.advance(6 * HOUR)
    await attempted(pauses.length + 2)
    expect(sender.counts()).toMatchObject({
      delivered: 1,
      waiting: 0,
      statuses: { 200: 1, 503: 10 },
    })
    expect(clock.pending()).toEqual([])
    const documents = target.deliveries.map(({ document }) => JSON.stringify(document))
    expect(new Set(documents).size).toBe(1)
  })

  it('the sandbox counts a webhook as failed if the receiver does not respond within 3 s', async () => {
    target.respond('none')
    report(['1'])
    await eventually(() => expect(target.deliveries).toHaveLength(1))
    clock.advance(3 * SECOND)
    await attempted(1)
    expect(sender.counts().statuses).toEqual({ 0: 1 })
    expect(clock.pending()).toEqual([10 * SECOND])
  })

  it('failed webhooks of the sandbox can be repeated before their scheduled time', async () => {
    target.respond(500)
    report(['1'])
    await attempted(1)
    target.respond(200)
    expect(sender.retryNow()).toBe(1)
    await attempted(2)
    expect(sender.counts()).toMatchObject({ delivered: 1, waiting: 0 })
  })

  it('the setting `copies` is the number of times that the sandbox sends each webhook, always with the same event ids', async () => {
    report(['1'], { copies: 3 })
    await attempted(3)
    expect(target.deliveries.map(({ document }) => JSON.stringify(document))).toEqual(
      Array(3).fill(expect.stringContaining('"id":"id-1"')),
    )
  })

  it('with the setting `shuffled`, the sandbox sends each change in its own webhook and in random order', async () => {
    sender.change({ shuffled: true })
    // The first three numbers decide which changes are dropped. The next three numbers decide the
    // order.
    random = [0.5, 0.5, 0.5, 0.9, 0.1, 0.5]
    report(['1', '2', '3'])
    await attempted(3)
    expect(target.deliveries.every(({ changes }) => changes.length === 1)).toBe(true)
    expect(changesReceived().toSorted()).toEqual(['1', '2', '3'].map(cloudEventOf))
  })

  it('the sandbox sends no webhook for a change whose random number is below the setting dropPercent', async () => {
    random = [0.1, 0.29, 0.3, 0.9]
    report(['1', '2', '3', '4'], { dropPercent: 30 })
    await attempted(1)
    expect(changesReceived()).toEqual([cloudEventOf('3'), cloudEventOf('4')])
    expect(sender.counts()).toMatchObject({ changes: 4, dropped: 2 })
  })

  it('the sandbox signs the given percentage of webhooks with a wrong key, and later repeats these webhooks with the right key', async () => {
    random = [0.5, 0.1]
    report(['1'], { wrongSignaturePercent: 50 })
    await attempted(1)
    expect(sender.counts()).toMatchObject({ statuses: { 403: 1 }, waiting: 1 })
    clock.advance(10 * SECOND)
    await attempted(2)
    expect(target.deliveries.map(({ isSigned }) => isSigned)).toEqual([false, true])
  })

  it('a reset of the sandbox drops all waiting webhooks and restores the settings', async () => {
    target.respond(500)
    report(['1'], { copies: 2 })
    await attempted(2)
    sender.reset()
    expect(clock.pending()).toEqual([])
    expect(sender.settings().copies).toBe(1)
    expect(sender.counts()).toMatchObject({ changes: 0, waiting: 0, attempts: 0 })
    target.respond(200)
    report(['2'])
    await attempted(1)
    expect(sender.counts().delivered).toBe(1)
  })
})
