import { CREDENTIALS_EXCHANGE } from '@integration-host/shared/contracts/credential'
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { ChannelModel } from 'amqplib'
import { expect } from 'vitest'
import type { System } from '../system.ts'

/**
 * The credential events since the start of the recording, in order, including duplicates. Their form is
 * `<name>/<version>/<kind>`.
 */
export interface CredentialEventCollector {
  readonly ids: readonly string[]
  /**
   * Waits for every event that the broker has confirmed so far, and then stops recording. Resolves with the ids of
   * all events.
   */
  stop(): Promise<readonly string[]>
}

export async function collectCredentialEvents(
  broker: ChannelModel,
  system: System,
): Promise<CredentialEventCollector> {
  const exchange = system.amqpPrefix + CREDENTIALS_EXCHANGE
  const channel = await broker.createConfirmChannel()
  await channel.assertExchange(exchange, 'topic', { durable: true })
  const { queue } = await channel.assertQueue('', { exclusive: true })
  await channel.bindQueue(queue, exchange, '#')
  const ids: string[] = []
  await channel.consume(
    queue,
    (message) => message && ids.push(String(message.properties.messageId)),
    { noAck: true },
  )
  return {
    ids,
    async stop() {
      channel.publish(exchange, 'end', Buffer.alloc(0), { messageId: 'end' })
      await eventually(() => expect(ids.at(-1)).toBe('end'))
      await channel.close()
      return ids.slice(0, -1)
    },
  }
}

/** Returns the events of one credential as `<version>/<kind>`. */
export const eventsOf = (name: string, ids: readonly string[]): string[] =>
  ids.filter((id) => id.startsWith(`${name}/`)).map((id) => id.slice(name.length + 1))
