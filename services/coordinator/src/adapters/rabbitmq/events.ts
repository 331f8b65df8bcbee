import { createHash } from 'node:crypto'
import {
  CredentialEvent,
  credentialEventKind,
} from '@integration-host/shared/contracts/credential-event'
import { CREDENTIALS_QUEUE, credentialsTopology } from '@integration-host/shared/contracts/topology'
import {
  TransactionEvent,
  transactionRoutingKey,
  TRANSACTIONS_EXCHANGE,
} from '@integration-host/shared/contracts/transaction-event'
import type { Consumer, MessageBus } from '@integration-host/shared/message-bus'
import { eventId } from '../../runner/transition-feed.ts'

/** A queue for each replica: every one shows every transition. */
const TRANSACTIONS_QUEUE = 'coordinator.transactions'

/** Calls `usable` for each credential that was stored or refreshed, until it resolved once. */
export async function onCredentialUsable(
  bus: MessageBus,
  tag: string,
  usable: (name: string) => Promise<void>,
): Promise<Consumer> {
  await bus.declare(credentialsTopology)
  return bus.consume(CREDENTIALS_QUEUE, { prefetch: 8, tag }, async ({ routingKey, content }) => {
    const event = parse(CredentialEvent, content)
    if (event === null || credentialEventKind(routingKey) === null) return 'ack'
    await usable(event.Name)
    return 'ack'
  })
}

export interface TransactionEvents {
  readonly publish: (event: TransactionEvent) => Promise<void>
  readonly consumer: Consumer
}

/** Transitions for other systems, and from the other replicas: `heard` is not called for our own. */
export async function joinTransactionEvents(
  bus: MessageBus,
  owner: string,
  heard: (event: TransactionEvent) => void,
): Promise<TransactionEvents> {
  await bus.declare({
    exchanges: [{ name: TRANSACTIONS_EXCHANGE, type: 'topic' }],
    queues: [
      {
        name: TRANSACTIONS_QUEUE,
        bindings: [{ exchange: TRANSACTIONS_EXCHANGE, routingKey: 'transaction.#' }],
        exclusive: true,
      },
    ],
  })
  const options = { prefetch: 500, tag: `${owner} events` }
  const consumer = bus.consume(TRANSACTIONS_QUEUE, options, async ({ content, headers }) => {
    // Before it is parsed: with one replica all of them are our own.
    const event = headers['replica'] === owner ? null : parse(TransactionEvent, content)
    if (event !== null) heard(event)
    return 'ack'
  })
  return {
    consumer,
    publish: (event) =>
      bus.publish({
        exchange: TRANSACTIONS_EXCHANGE,
        routingKey: transactionRoutingKey(event),
        messageId: messageId(eventId(event)),
        type: `transaction.${event.Status.toLowerCase()}`,
        headers: { replica: owner },
        body: event,
        mandatory: false,
      }),
  }
}

// AMQP takes 255 bytes; an encoded id can be longer.
const messageId = (id: string): string =>
  id.length <= 255 ? id : createHash('sha256').update(id).digest('hex')

function parse<Value>(
  schema: { safeParse(value: unknown): { success: true; data: Value } | { success: false } },
  content: Buffer,
): Value | null {
  try {
    const parsed = schema.safeParse(JSON.parse(content.toString('utf8')))
    return parsed.success ? parsed.data : null
  } catch {
    return null
  }
}
