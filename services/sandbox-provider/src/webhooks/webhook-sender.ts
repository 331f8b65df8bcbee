/**
 * Sends notifications as Intuit does: signed, with a timeout of 3 s, and repeated by Intuit's schedule until the
 * receiver responds 200. Settings add the faults that Intuit's documentation warns of.
 *
 * W1  A change is either dropped, with the probability `dropPercent`, or becomes part of a delivery. A delivery is
 *     repeated until the response is 200.
 * W2  All attempts and copies of a delivery have the same changes and the same CloudEvents ids.
 * W3  At most `MAX_WAITING` deliveries wait. Above this number, the oldest one is dropped, so that the memory is not
 *     exhausted while the receiver is unavailable.
 */
import { createHmac } from 'node:crypto'
import type { Clock, Timer } from '@integration-host/shared/process/clock'
import { createPendingWork } from '@integration-host/shared/process/pending-work'
import { createSemaphore } from '@integration-host/shared/process/limits'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { z } from 'zod'
import { type BookChange, type NotifiedChange, notificationOf } from './notification.ts'

const Percent = z.number().min(0).max(100)

/**
 * The settings that determine how the sandbox sends webhooks. Some settings cause the faults that Intuit's
 * documentation warns of.
 */
export const WebhookSettings = z
  .strictObject({
    format: z.enum(['cloudevents', 'legacy']).meta({ description: 'the format of notifications' }),
    batchMs: z.int().min(0).max(60_000).meta({
      description: 'changes within this time are sent in one notification, at most 100 of them',
    }),
    copies: z.int().min(1).max(10).meta({ description: 'how often each notification is sent' }),
    shuffled: z.boolean().meta({
      description: 'whether each change is a notification of its own, sent in random order',
    }),
    dropPercent: Percent.meta({ description: 'the share of changes that are never sent' }),
    wrongSignaturePercent: Percent.meta({
      description: 'the share of attempts with a wrong signature; such an attempt is repeated',
    }),
  })
  .meta({ ref: 'WebhookSettings' })
export type WebhookSettings = z.output<typeof WebhookSettings>

/** The default settings: webhooks are sent as Intuit documents them, without faults. */
const documentedWebhooks: WebhookSettings = {
  format: 'cloudevents',
  batchMs: 50,
  copies: 1,
  shuffled: false,
  dropPercent: 0,
  wrongSignaturePercent: 0,
}

export interface WebhookSenderDeps {
  readonly url: string
  /** The token with which notifications are signed. */
  readonly token: Secret
  readonly clock: Clock
  readonly fetch: typeof fetch
  /** Returns a number in [0, 1). */
  readonly random: () => number
  readonly newId: () => string
}

interface Delivery {
  readonly changes: readonly NotifiedChange[]
  failures: number
  /** The timer of the next attempt; `null` while an attempt is in flight. */
  timer: Timer | null
}

const TIMEOUT_MS = 3_000
const MAX_CHANGES = 100
const MAX_WAITING = 10_000
const CONCURRENT_ATTEMPTS = 16

export function createWebhookSender(deps: WebhookSenderDeps) {
  const { url, token, clock, random, newId } = deps
  const permits = createSemaphore(CONCURRENT_ATTEMPTS)
  const inFlight = createPendingWork()
  let closing = new AbortController()
  let settings = documentedWebhooks
  let batch: NotifiedChange[] = []
  let batchTimer: Timer | null = null
  let waiting = new Set<Delivery>()
  let counted = noCounts()

  const onChange = (change: BookChange): void => {
    counted.changes += 1
    if (random() * 100 < settings.dropPercent) {
      counted.dropped += 1
      return
    }
    batch.push({ ...change, eventId: newId() })
    if (batchTimer !== null) return
    batchTimer = clock.setTimeout(sendBatch, settings.batchMs)
    batchTimer.unref()
  }

  function sendBatch(): void {
    const changes = batch
    batch = []
    batchTimer = null
    const groups: (readonly NotifiedChange[])[] = []
    const size = settings.shuffled ? 1 : MAX_CHANGES
    for (let start = 0; start < changes.length; start += size)
      groups.push(changes.slice(start, start + size))
    const all = groups.flatMap((group) => Array<typeof group>(settings.copies).fill(group))
    for (const group of settings.shuffled ? shuffle(all) : all) deliver(group)
  }

  function deliver(changes: readonly NotifiedChange[]): void {
    const delivery: Delivery = { changes, failures: 0, timer: null }
    waiting.add(delivery)
    const [oldest] = waiting
    if (waiting.size > MAX_WAITING && oldest !== undefined) {
      oldest.timer?.[Symbol.dispose]()
      waiting.delete(oldest)
      counted.givenUp += 1
    }
    attempt(delivery)
  }

  function attempt(delivery: Delivery): void {
    delivery.timer = null
    const { signal } = closing
    void inFlight.add(
      permits.run(async () => {
        if (signal.aborted || !waiting.has(delivery)) return
        const status = await post(delivery.changes, signal)
        if (signal.aborted) return
        counted.attempts += 1
        counted.statuses.set(status, (counted.statuses.get(status) ?? 0) + 1)
        if (status === 200) {
          waiting.delete(delivery)
          counted.delivered += 1
        } else if (waiting.has(delivery)) {
          delivery.failures += 1
          delivery.timer = clock.setTimeout(
            () => attempt(delivery),
            pauseAfterMs(delivery.failures),
          )
          delivery.timer.unref()
        }
      }),
    )
  }

  /** Returns the status of the response; 0 if there is no response within 3 s. */
  async function post(changes: readonly NotifiedChange[], signal: AbortSignal): Promise<number> {
    const { contentType, body } = notificationOf(changes, settings.format)
    const isForged = random() * 100 < settings.wrongSignaturePercent
    const key = isForged ? `not ${token.reveal()}` : token.reveal()
    const timeout = new AbortController()
    const timer = clock.setTimeout(() => timeout.abort(), TIMEOUT_MS)
    try {
      const response = await deps.fetch(url, {
        method: 'POST',
        headers: {
          'Content-Type': contentType,
          'User-Agent': 'intuit_notification_server/0.1',
          'intuit-signature': createHmac('sha256', key).update(body).digest('base64'),
          'intuit-created-time': new Date(clock.now()).toISOString(),
          'intuit-t-id': newId(),
          'intuit-notification-schema-version': '0.1',
        },
        body,
        redirect: 'manual',
        signal: AbortSignal.any([signal, timeout.signal]),
      })
      await response.body?.cancel()
      return response.status
    } catch {
      return 0
    } finally {
      timer[Symbol.dispose]()
    }
  }

  function shuffle<T>(items: readonly T[]): T[] {
    return items
      .map((item) => ({ item, order: random() }))
      .toSorted((one, other) => one.order - other.order)
      .map(({ item }) => item)
  }

  function stop(): void {
    closing.abort()
    batchTimer?.[Symbol.dispose]()
    batchTimer = null
    batch = []
    for (const { timer } of waiting) timer?.[Symbol.dispose]()
    waiting = new Set()
  }

  return {
    onChange,
    settings: () => settings,
    change: (part: Partial<WebhookSettings>): WebhookSettings =>
      (settings = { ...settings, ...part }),
    /** Returns the counts since the last reset. The status `0` counts the attempts without a response within 3 s. */
    counts: () => ({
      ...counted,
      waiting: waiting.size,
      statuses: Object.fromEntries(counted.statuses),
    }),
    /** Sends all waiting deliveries now, before their scheduled times. Returns their number. */
    retryNow(): number {
      const due = [...waiting].filter(({ timer }) => timer !== null)
      for (const delivery of due) {
        delivery.timer?.[Symbol.dispose]()
        attempt(delivery)
      }
      return due.length
    },
    /** Drops all waiting deliveries, and restores the default settings and the counts. */
    reset() {
      stop()
      closing = new AbortController()
      settings = documentedWebhooks
      counted = noCounts()
    },
    async [Symbol.asyncDispose]() {
      stop()
      await inFlight.ended()
    },
  }
}

export type WebhookSender = ReturnType<typeof createWebhookSender>

const noCounts = () => ({
  changes: 0,
  dropped: 0,
  delivered: 0,
  givenUp: 0,
  attempts: 0,
  statuses: new Map<number, number>(),
})

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS

/**
 * The pauses after the first, second, third … failed attempt of a delivery, in milliseconds.
 * Further attempts use the last pause.
 *
 * @see https://developer.intuit.com/app/developer/qbo/docs/develop/webhooks (Retry policy)
 */
const PAUSES_MS = [
  10_000,
  20_000,
  30_000,
  5 * MINUTE_MS,
  20 * MINUTE_MS,
  2 * HOUR_MS,
  4 * HOUR_MS,
  6 * HOUR_MS,
] as const

/**
 * Returns the pause in milliseconds between the last of `failures` failed attempts (at least one) and the next attempt.
 */
const pauseAfterMs = (failures: number): number =>
  PAUSES_MS[Math.min(failures, PAUSES_MS.length) - 1] ?? PAUSES_MS[0]
