import { setTimeout as delay } from 'node:timers/promises'
import {
  CREDENTIALS_EXCHANGE,
  credentialRoutingKey,
} from '@integration-host/shared/contracts/credential'
import { onQueue, PROVIDER_EXCHANGE } from '@integration-host/shared/contracts/provider-event'
import {
  START_EXCHANGE,
  startQueue,
  stepQueue,
  STEPS_EXCHANGE,
  CREDENTIALS_QUEUE,
  ERASURES_QUEUE,
} from '@integration-host/shared/contracts/topology'
import { connect } from 'amqplib'
import { backend, type System } from '../../support/system.ts'
import type { Place } from '../doubling.ts'

const PROCESS = 'OrderProcess'
const LENGTHS = [15_000, 60_000, 1_000_000]
/** The client encodes all headers of a message into 64 KiB, and each test message has the text three times. */
const HEADER_LENGTHS = [2_500, 10_000]
const POLL_MS = 5
/** Within this time the coordinator begins with a message. */
const CONSUMED_MS = 1_000

/** What the coordinator consumes, with a member that accepts any value. */
const consumed = [
  [START_EXCHANGE, PROCESS, startQueue(PROCESS), '{"TransactionID":"a","InitialData":', '}'],
  [STEPS_EXCHANGE, `${PROCESS}.order`, stepQueue(PROCESS, 'order'), '{"v":1,"Step":', '}'],
  [PROVIDER_EXCHANGE, 'intuit.Invoice.update', onQueue(PROCESS), '{"Provider":"intuit","Id":', '}'],
  [CREDENTIALS_EXCHANGE, credentialRoutingKey('stored'), CREDENTIALS_QUEUE, '{"Name":', '}'],
  [CREDENTIALS_EXCHANGE, credentialRoutingKey('removed'), ERASURES_QUEUE, '{"Name":', '}'],
] as const

/** Returns the places of the messages that the coordinator consumes. */
export async function placesOfMessages(
  system: System,
  opened: AsyncDisposableStack,
): Promise<readonly Place[]> {
  const broker = await connect(backend('TEST_AMQP_URL'))
  opened.defer(() => broker.close())
  const channel = await broker.createConfirmChannel()
  const process = system.service('coordinator')
  return consumed.flatMap(([exchange, routingKey, queue, before, after]): Place[] => {
    async function publish(
      body: string,
      properties: { readonly messageId?: string; readonly headers?: Record<string, string> } = {},
    ): Promise<void> {
      channel.publish(system.amqpPrefix + exchange, routingKey, Buffer.from(body), properties)
      await channel.waitForConfirms()
      for (let left = CONSUMED_MS; left > 0; left -= POLL_MS) {
        if ((await channel.checkQueue(system.amqpPrefix + queue)).messageCount === 0) break
        await delay(POLL_MS)
      }
    }
    const place = { process, isAsynchronous: true, syntax: 'json', lengths: LENGTHS } as const
    return [
      { ...place, name: `${queue}: body`, send: (text) => publish(text) },
      { ...place, name: `${queue}: member`, send: (text) => publish(before + text + after) },
      {
        ...place,
        name: `${queue}: header`,
        syntax: 'text',
        lengths: HEADER_LENGTHS,
        send: (text) =>
          publish(`${before}1${after}`, {
            headers: { traceparent: text, tracestate: text, 'user-id': text },
          }),
      },
    ]
  })
}
