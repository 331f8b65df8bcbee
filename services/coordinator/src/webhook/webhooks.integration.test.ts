import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { until } from '@integration-host/shared/test-support/eventually'
import {
  createWebhooksFile,
  startWebhookReceiver,
  type WebhookReceiver,
} from '@integration-host/shared/test-support/webhook-receiver'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { publishCredentialEvent } from '../../test-support/credential-event.ts'
import { type Backends, openBackends, startFixture } from '../../test-support/fixture.ts'
import { webhooksContract } from './webhooks.contract.ts'

webhooksContract('real')

describe('webhooks of credential events on RabbitMQ', () => {
  let backends: Backends
  beforeAll(async () => {
    backends = await openBackends('real', {
      OrderProcess: ['order', 'report', 'csv'],
      Webhook: ['deliver'],
    })
  })
  afterAll(() => backends[Symbol.asyncDispose]())

  const companies = ['r1', 'r2', 'r3', 'r4', 'r5']
  /** Publishes `count` events of each company. The first event has the version `after` + 1. */
  async function publish(bus: MessageBus, after: number, count: number): Promise<void> {
    for (let Version = after + 1; Version <= after + count; Version += 1)
      for (const company of companies) {
        // The times differ, because the clocks of two replicas of token-service may differ.
        const At = new Date(Date.now() + (Version % 2) * 5_000).toISOString()
        await publishCredentialEvent(bus, 'stored', { Name: `ACC-${company}`, Version, At })
      }
  }
  const versionsOf = ({ received }: WebhookReceiver, company: string) =>
    received.filter(({ data }) => data['Realm'] === company).map(({ data }) => data['Version'])
  const upTo = (last: number) => Array.from({ length: last }, (_, index) => index + 1)

  it('two replicas deliver the webhooks of each company once and in order, even if the events were published while no coordinator ran', async () => {
    await using receiver = await startWebhookReceiver()
    await using file = await createWebhooksFile([receiver.entry()])
    await using bus = await backends.openBus()
    {
      await using replicas = new AsyncDisposableStack()
      for (let count = 0; count < 2; count += 1)
        replicas.use(await startFixture(backends, { env: file.env }))
      await publish(bus, 0, 20)
      await until(() => receiver.received.length >= 20 * companies.length)
    }
    await publish(bus, 20, 5)
    await using replicas = new AsyncDisposableStack()
    replicas.use(await startFixture(backends, { env: file.env }))
    await until(() => receiver.received.length >= 25 * companies.length)
    for (const company of companies) expect(versionsOf(receiver, company)).toEqual(upTo(25))
  })
})
