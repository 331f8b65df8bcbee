import {
  ProviderEvent,
  providerEventId,
  providerRoutingKey,
} from '@integration-host/shared/contracts/provider-event'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { misaddressed } from '@integration-host/shared/messaging/message-bus'
import { parseMessageAs } from '@integration-host/shared/json'
import {
  changeOf,
  type ChangeTrigger,
  debounceKeyOf,
  debounceSecondsOf,
} from '../step/change-trigger.ts'
import type { ChangeMessage } from './change-queue.ts'
import type { ReadMessage } from '../worker/message-intake.ts'

/** The reason why an event starts no run. */
export type IgnoredChange =
  /** The company is not connected: token-service has no credential for it. */
  | 'unknown_realm'
  /** The definition of the process no longer names the change. */
  | 'unwanted'

/** The maximum size of an event. Real events have less than 1 KiB. */
const MAX_BYTES = 16_384

export interface ChangeReaderDeps {
  /**
   * Returns whether at least one replica subscribes to events with this routing key for the process.
   *
   * @throws {IntegrationError} `store_unavailable`
   */
  readonly wants: (process: string, routingKey: string) => Promise<boolean>
  /** Returns the member `on` of the loaded definition of the process. */
  readonly triggersOf: (process: string) => readonly ChangeTrigger[]
  /**
   * Returns whether the company is connected.
   * @throws {IntegrationError} `token_service_unavailable`
   */
  readonly isConnected: (realm: string) => Promise<boolean>
  /** Called for each event that the provider has delivered by webhook, and not for events from the change feed. */
  readonly onDelivery: () => void
  /** Called for each event of a company that is not connected. */
  readonly onUnknownRealm: (process: string, event: ProviderEvent) => void
}

/** Returns a function that reads the provider events of the queues `on.<Process>`. */
export function createChangeReader({
  wants,
  triggersOf,
  isConnected,
  onDelivery,
  onUnknownRealm,
}: ChangeReaderDeps) {
  return async (process: string, message: ChangeMessage): Promise<ReadMessage<IgnoredChange>> => {
    const event = readEvent(message)
    if ('reason' in event) return event
    const routingKey = providerRoutingKey(event)
    if (event.Source === 'webhook') onDelivery()
    if (!(await wants(process, routingKey))) return { ignored: 'unwanted' }
    if (!(await isConnected(event.Realm))) {
      onUnknownRealm(process, event)
      return { ignored: 'unknown_realm' }
    }
    const seconds = debounceSecondsOf(triggersOf(process), event)
    const transaction = transactionOf(event)
    return {
      transaction:
        seconds === undefined
          ? transaction
          : { ...transaction, Debounce: { Key: debounceKeyOf(event), Seconds: seconds } },
      by: undefined,
    }
  }
}

/** Returns the event of a message, or the reason why the message is dead-lettered. */
export function readEvent({
  content,
  address,
}: ChangeMessage): ProviderEvent | { readonly reason: string } {
  if (content.length > MAX_BYTES)
    return { reason: `payload_too_large: may have at most ${MAX_BYTES} bytes` }
  const event = eventOf(content)
  if (event === null) return { reason: 'malformed: the message is not a provider event' }
  // Every publisher derives the id from the change. A message with another id is rejected, because one change could
  // otherwise start several runs.
  if (event.Id !== providerEventId(event))
    return { reason: 'invalid_request: Id is not the id of this change' }
  const reason = misaddressed(address, providerRoutingKey(event))
  return reason === null ? event : { reason }
}

const eventOf = (content: Buffer): ProviderEvent | null => parseMessageAs(ProviderEvent, content)

const transactionOf = (event: ProviderEvent): QueueTransaction => ({
  TransactionID: event.Id,
  Realm: event.Realm,
  InitialData: changeOf(event),
})

/**
 * Returns the event and the transaction of a dead letter that is a provider event; `null` if it is not a provider event.
 */
export function changeOfLetter(
  content: Buffer,
): { readonly event: ProviderEvent; readonly transaction: QueueTransaction } | null {
  const event = eventOf(content)
  return event === null || event.Id !== providerEventId(event)
    ? null
    : { event, transaction: transactionOf(event) }
}
