import { PROVIDER_EXCHANGE, ProviderEvent } from '@integration-host/shared/contracts/provider-event'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import { readEmbeddedConfig } from '../src/config.ts'
import { startWebhookReceiver } from '../src/service.ts'
import { signatureOf, TOKEN } from './notifications.ts'

export interface ReceivedEvent {
  readonly routingKey: string
  readonly messageId: string
  readonly event: ProviderEvent
}

/** A receiver on an unused port, and a queue that receives all events that the receiver publishes. */
export interface ReceiverFixture extends AsyncDisposable {
  readonly url: string
  readonly port: number
  /** The received events, in the order of their arrival. */
  readonly events: readonly ReceivedEvent[]
  /** The log lines that the receiver has written so far. */
  readonly lines: readonly string[]
  /** Sends a body with a valid signature; `headers` overrides single headers. Objects are sent as JSON. */
  send(body: unknown, headers?: Readonly<Record<string, string>>): Promise<Response>
  /** Resolves when exactly the events with these message ids have arrived, in this order. */
  expectIds(ids: readonly string[]): Promise<void>
  /** Returns the value of a metric, such as `webhook_deliveries_total{outcome="accepted"}`; 0 if it is absent. */
  metric(name: string, labels?: Readonly<Record<string, string>>): Promise<number>
}

export interface FixtureOptions {
  readonly tokens?: string
  readonly bus?: MessageBus
  readonly deadlineMs?: number
}

export async function startReceiver(options: FixtureOptions = {}): Promise<ReceiverFixture> {
  const { tokens = TOKEN, deadlineMs } = options
  const lines: string[] = []
  const logger = createLogger('webhook-receiver', 'debug', {
    write: (line) => void lines.push(line),
  })
  await using opened = new AsyncDisposableStack()
  const bus = opened.use(options.bus ?? createInProcessBus(logger))
  const service = opened.use(
    await startWebhookReceiver(readEmbeddedConfig({ PORT: '0', WEBHOOK_VERIFIER_TOKENS: tokens }), {
      logger,
      health: createHealth(logger),
      bus,
      ...(deadlineMs !== undefined && { deadlineMs }),
    }),
  )
  const events: ReceivedEvent[] = []
  await bus.declare({
    exchanges: [{ name: PROVIDER_EXCHANGE, type: 'topic' }],
    queues: [
      {
        name: 'all',
        bindings: [{ exchange: PROVIDER_EXCHANGE, routingKey: 'intuit.#' }],
        exclusive: true,
      },
    ],
  })
  bus.consume('all', { prefetch: 100, tag: 'test' }, async ({ routingKey, messageId, content }) => {
    events.push({
      routingKey,
      messageId,
      event: ProviderEvent.parse(JSON.parse(content.toString())),
    })
    return 'ack'
  })
  const running = opened.move()
  const fixture: ReceiverFixture = {
    url: service.url,
    port: Number(new URL(service.url).port),
    events,
    lines,
    send(body, headers = {}) {
      const text = typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body)
      return fetch(`${service.url}/webhooks/intuit`, {
        method: 'POST',
        headers: {
          'Content-Type': 'application/json',
          'intuit-signature': signatureOf(text),
          ...headers,
        },
        body: typeof text === 'string' ? text : new Uint8Array(text),
      })
    },
    expectIds: (ids) =>
      eventually(() => expect(events.map(({ messageId }) => messageId)).toEqual(ids)),
    async metric(name, labels = {}) {
      const text = await (await fetch(`${service.url}/metrics`)).text()
      const wanted = Object.entries(labels).map(([label, value]) => `${label}="${value}"`)
      const line = text
        .split('\n')
        .find((one) => one.startsWith(`${name}{`) && wanted.every((label) => one.includes(label)))
      return Number(line?.split(' ').at(-1) ?? 0)
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
  return fixture
}
