import { CREDENTIALS_EXCHANGE } from '@integration-host/shared/contracts/credential'
import type { DeadLetterPage } from '@integration-host/shared/contracts/operations'
import {
  PROVIDER_EXCHANGE,
  providerRoutingKey,
} from '@integration-host/shared/contracts/provider-event'
import {
  START_EXCHANGE,
  startQueue,
  ERASURES_QUEUE,
} from '@integration-host/shared/contracts/topology'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { connect, type ConfirmChannel } from 'amqplib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  type Backends,
  type Fixture,
  openBackends,
  startFixture,
} from '../../test-support/fixture.ts'
import { onErasureRequested } from '../credentials.ts'
import { changeEvent, isConsumed, sale as onInvoice } from '../change/changes.contract.ts'
import { refund, sale, startMessagesContract } from './start-messages.contract.ts'
import { readActions } from '../run/action.ts'

startMessagesContract('real')

it('each run that a start message begins is in the action log: its actor is the user that the broker has verified, or `rabbitmq` without one', async () => {
  await using backends = await openBackends('real')
  await using host = await startFixture(backends)
  const url = process.env['TEST_AMQP_URL'] ?? ''
  const user = decodeURIComponent(new URL(url).username)
  const connection = await connect(url)
  const channel = await connection.createConfirmChannel()
  const send = (messageId: string, body: object, properties: { userId?: string }): void =>
    void channel.publish(
      backends.prefix + START_EXCHANGE,
      'OrderProcess',
      Buffer.from(JSON.stringify(body)),
      { messageId, ...properties },
    )
  send('user', { InitialData: 1 }, { userId: user })
  send('reason', { InitialData: 1, Reason: 'the import failed' }, {})
  send('neither', { InitialData: 1 }, {})
  await channel.waitForConfirms()
  await connection.close()
  for (const id of ['user', 'reason', 'neither']) await host.reached(id, 'Completed')
  const actions = await readActions(host.source, { limit: 10 })
  const ofRuns = actions.map(({ TransactionID, ...action }) => [TransactionID, action] as const)
  expect(Object.fromEntries(ofRuns)).toEqual({
    user: expect.objectContaining({ Action: 'queue', KeyID: `rabbitmq:${user}`, Reason: null }),
    reason: expect.objectContaining({ KeyID: 'rabbitmq', Reason: 'the import failed' }),
    neither: expect.objectContaining({ Action: 'queue', KeyID: 'rabbitmq', Reason: null }),
  })
})

/**
 * RabbitMQ routes a message also by its header BCC, which it removes, and before version 4.0.4 it does so although the
 * topic permissions of the publisher do not allow it.
 */
describe('a message that RabbitMQ has routed by its header BCC', () => {
  const opened = new Array<AsyncDisposable>()
  let backends: Backends
  let channel: ConfirmChannel
  beforeEach(async () => {
    backends = await openBackends('real', { Sale: ['sell'], Refund: ['refund'] })
    opened.push(backends)
    const connection = await connect(process.env['TEST_AMQP_URL'] ?? '')
    opened.push({ [Symbol.asyncDispose]: () => connection.close() })
    channel = await connection.createConfirmChannel()
  })
  afterEach(async () => {
    for (const resource of opened.splice(0).toReversed()) await resource[Symbol.asyncDispose]()
  })
  const start = async (processes: Parameters<typeof startFixture>[1]): Promise<Fixture> => {
    const host = await startFixture(backends, processes)
    opened.push(host)
    return host
  }
  const publish = (exchange: string, routingKey: string, body: object, BCC: string): void => {
    const content = Buffer.from(JSON.stringify(body))
    channel.publish(backends.prefix + exchange, routingKey, content, { BCC, persistent: true })
  }
  const reasons = async (host: Fixture, process: string): Promise<readonly string[]> => {
    const response = await host.call(`/processes/${process}/dead-letters?limit=100`)
    return ((await response.json()) as DeadLetterPage).items.map(({ Reason }) => Reason)
  }
  const OTHER_KEY = 'misaddressed: the message was published with another routing key'

  it('starts a run only in the process of its routing key, and is dead-lettered in the other', async () => {
    const host = await start({ processes: [sale, refund] })
    const InitialData = { amount: 1 }
    publish(START_EXCHANGE, 'Sale', { TransactionID: 'blind', InitialData }, 'Refund')
    await host.reached('blind', 'Completed')
    await eventually(async () => expect(await reasons(host, 'Refund')).toEqual([OTHER_KEY]))
    expect((await host.call('/processes/Refund/transactions/blind')).status).toBe(404)
    // RabbitMQ's management page publishes to the default exchange, with the name of the queue as routing key.
    const byHand = Buffer.from(JSON.stringify({ TransactionID: 'by-hand', InitialData }))
    channel.sendToQueue(backends.prefix + startQueue('Refund'), byHand)
    await eventually(async () =>
      expect((await host.call('/processes/Refund/transactions/by-hand')).status).toBe(200),
    )
  })

  it('starts no run for a provider event whose routing key is that of another change', async () => {
    const host = await start({ processes: [onInvoice] })
    await isConsumed(host)
    const event = changeEvent()
    publish(PROVIDER_EXCHANGE, 'intuit.Customer.update', event, providerRoutingKey(event))
    await eventually(async () => expect(await reasons(host, 'Sale')).toEqual([OTHER_KEY]))
    const path = `/processes/Sale/transactions/${encodeURIComponent(event.Id)}`
    expect((await host.call(path)).status).toBe(404)
  })

  it('erases no runs if its routing key is that of another credential event', async () => {
    const bus = await backends.openBus()
    opened.push(bus)
    await bus.ready(AbortSignal.timeout(60_000))
    const erased: string[] = []
    await onErasureRequested(bus, 'test', async (name) => erased.push(name) > 0)
    const at = new Date().toISOString()
    const event = { Environment: '1', Expiry: at, Version: 1, At: at, erase: true }
    const [stored, removed] = ['credential.stored', 'credential.removed']
    publish(CREDENTIALS_EXCHANGE, stored, { ...event, Name: 'ACC-1' }, removed)
    publish(CREDENTIALS_EXCHANGE, removed, { ...event, Name: 'ACC-2' }, stored)
    await eventually(async () => {
      expect(erased).toEqual(['ACC-2'])
      expect(await bus.depth(ERASURES_QUEUE)).toMatchObject({ ready: 0 })
    })
  })
})
