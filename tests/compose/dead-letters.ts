import { expect } from './check.ts'
import type { Stack } from './stack.ts'

/** The number of reads exceeds the default `delivery-limit` of RabbitMQ 4. */
const READINGS = 25

/**
 * Checks that a dead letter is still in its queue after it was read and requeued 25 times on the management page,
 * as docs/runbook.md advises. Without a policy, RabbitMQ 4 would delete the message when it is requeued for the
 * 21st time.
 */
export async function deadLettersSurviveReading(stack: Stack): Promise<void> {
  const call = (path: string, body: object): Promise<unknown> =>
    stack.management('POST', path, body)
  const read = (ackmode: string) =>
    call('queues/%2F/dead.OrderProcess/get', { count: 1, ackmode, encoding: 'auto' })

  await call('exchanges/%2F/amq.default/publish', {
    routing_key: 'dead.OrderProcess',
    payload: 'unreadable',
    payload_encoding: 'string',
    properties: {},
  })
  for (let reading = 1; reading <= READINGS; reading++) {
    const messages = (await read('ack_requeue_true')) as readonly unknown[]
    expect(messages.length === 1, `the message was missing at read number ${reading}`)
  }
  await read('ack_requeue_false')
}
