import { expect } from './check.ts'
import type { Stack } from './stack.ts'

/** More than the default `delivery-limit` of RabbitMQ 4. */
const READINGS = 25

/**
 * Checks that a dead-letter queue keeps a message that is read and requeued in the console, as
 * docs/runbook.md advises.
 */
export async function deadLettersSurviveReading(stack: Stack, password: string): Promise<void> {
  const call = async (path: string, body: object): Promise<unknown> => {
    const response = await fetch(`${stack.at('RABBITMQ_CONSOLE_PORT')}/api/${path}`, {
      method: 'POST',
      headers: {
        Authorization: `Basic ${Buffer.from(`console:${password}`).toString('base64')}`,
        'Content-Type': 'application/json',
      },
      body: JSON.stringify(body),
    })
    expect(response.ok, `the console responds with ${response.status} to ${path}`)
    return response.json()
  }
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
    expect(messages.length === 1, `the message was gone at reading ${reading}`)
  }
  await read('ack_requeue_false')
}
