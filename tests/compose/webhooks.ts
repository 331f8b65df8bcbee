/** Steps of `npm run test:compose` that send notifications of the provider through the ingress. */
import { createHmac, randomBytes } from 'node:crypto'
import { expect, until } from './check.ts'
import type { Stack } from './stack.ts'

interface QueuedMessage {
  readonly routing_key: string
  readonly properties: { readonly message_id: string }
}

const VHOST = encodeURIComponent('/')

/**
 * Sends a signed notification through the ingress, and checks that its event arrives in a queue of RabbitMQ. A notification with a
 * wrong signature must be rejected, and the receiver's account must not be able to read a queue.
 */
export async function publishesNotification(stack: Stack, realm: string): Promise<void> {
  const token = await stack.read('webhook-receiver', '/secrets/webhook_verifier_tokens')
  const queue = `test.${randomBytes(4).toString('hex')}`
  await stack.management('PUT', `queues/${VHOST}/${queue}`, { durable: false })
  await stack.management('POST', `bindings/${VHOST}/e/integration.provider/q/${queue}`, {
    routing_key: 'intuit.Invoice.*',
  })
  const send = async (key: string, id: string): Promise<number> => {
    const body = JSON.stringify([
      {
        specversion: '1.0',
        id: randomBytes(8).toString('hex'),
        type: 'qbo.invoice.created.v1',
        time: '2026-11-23T17:05:09.179851517Z',
        intuitentityid: id,
        intuitaccountid: realm,
        data: {},
      },
    ])
    const { status } = await fetch(`${stack.at('WEBHOOK_RECEIVER_PORT')}/webhooks/intuit`, {
      method: 'POST',
      headers: {
        'Content-Type': 'application/cloudevents+json',
        'intuit-signature': createHmac('sha256', key).update(body).digest('base64'),
      },
      body,
    })
    return status
  }
  expect((await send('a wrong verifier token', '1')) === 403, 'a wrong signature is accepted')
  const status = await send(token, '2')
  expect(status === 200, `the receiver responds with ${status} to a signed notification`)
  let messages: readonly QueuedMessage[] = []
  await until('the event arrives', async () => {
    messages = (await stack.management('POST', `queues/${VHOST}/${queue}/get`, {
      count: 10,
      ackmode: 'ack_requeue_true',
      encoding: 'auto',
    })) as readonly QueuedMessage[]
    return messages.length > 0
  })
  const [message] = messages
  expect(
    messages.length === 1 && message?.routing_key === 'intuit.Invoice.create',
    `the queue has ${messages.map(({ routing_key }) => routing_key).join(', ')}`,
  )
  const id = `Invoice-2@2026-11-23T17:05:09Z/${realm}`
  expect(message?.properties.message_id === id, 'the message has another id')
  await stack.management('DELETE', `queues/${VHOST}/${queue}`)
}
