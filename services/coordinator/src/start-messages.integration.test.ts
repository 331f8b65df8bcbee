import { START_EXCHANGE } from '@integration-host/shared/contracts/start-message'
import { connect } from 'amqplib'
import { expect, it } from 'vitest'
import { openBackends, startFixture } from '../test-support/fixture.ts'
import { startMessagesContract } from './start-messages.contract.ts'

startMessagesContract('real')

it('the actor of a start message is the user that the broker has verified; without a user there is no actor', async () => {
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
  const actions = await host.source.actions({ limit: 10 })
  const ofRuns = actions.map(({ TransactionID, ...action }) => [TransactionID, action] as const)
  expect(Object.fromEntries(ofRuns)).toEqual({
    user: expect.objectContaining({ Action: 'queue', KeyID: `rabbitmq:${user}`, Reason: null }),
    reason: expect.objectContaining({ KeyID: 'rabbitmq', Reason: 'the import failed' }),
  })
})
