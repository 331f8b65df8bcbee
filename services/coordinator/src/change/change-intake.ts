/** What becomes of the provider's events: runs (queues `on.<Process>`), and looks at objects for which runs wait (`changes.<Process>`). */
import {
  changesQueue,
  onQueue,
  ProviderEvent,
  providerEventId,
  providerRoutingKey,
  providerRoutingKeys,
} from '@integration-host/shared/contracts/provider-event'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { watchedKeysOf } from '../step/change-place.ts'
import {
  changeOf,
  debounceKeyOf,
  debounceSecondsOf,
  routingKeysOf,
} from '../step/change-trigger.ts'
import type { IntakeResult, MessageIntake } from '../worker/message-intake.ts'
import {
  type EventFormat,
  type EventIntakeDeps,
  eventOfLetter,
  type EventQueues,
  readEvent,
  startEventIntake,
} from './event-intake.ts'
import type { Looks } from './look.ts'

/** The reason why an event starts no run. */
type IgnoredChange =
  /** The company is not connected: token-service has no credential for it. */
  | 'unknown_realm'
  /** The definition of the process no longer names the change. */
  | 'unwanted'

/** How an event was handled. */
export type ChangeResult = IntakeResult | IgnoredChange

export const ON_QUEUES: EventQueues = {
  kind: 'provider event',
  queueOf: onQueue,
  keysOf: ({ on }) => routingKeysOf(on),
  allKeys: providerRoutingKeys,
  storedAs: (process) => process,
}

export const CHANGES_QUEUES: EventQueues = {
  kind: 'provider event',
  queueOf: changesQueue,
  keysOf: watchedKeysOf,
  allKeys: providerRoutingKeys,
}

/** Real events have less than 1 KiB. */
const FORMAT: EventFormat<ProviderEvent> = {
  schema: ProviderEvent,
  what: 'a provider event',
  maxBytes: 16_384,
  idOf: providerEventId,
  keyOf: providerRoutingKey,
}

export interface ChangeIntakeDeps extends EventIntakeDeps {
  /** Returns whether the company is connected. @throws {IntegrationError} `token_service_unavailable` */
  readonly isConnected: (realm: string) => Promise<boolean>
  /** Called for each event that the provider has delivered by webhook, and not for events from the change feed. */
  readonly onDelivery: () => void
  readonly count: (process: string, result: ChangeResult) => void
}

/** Queues a run for each event of the queues `on.<Process>`. */
export function startChangeIntake(deps: ChangeIntakeDeps): MessageIntake {
  const { processes, isConnected, onDelivery, log, count } = deps
  return startEventIntake<IgnoredChange>(
    ON_QUEUES,
    {
      async read(process, message, wants) {
        const event = readEvent(message, FORMAT)
        if ('reason' in event) return event
        if (event.Source === 'webhook') onDelivery()
        if (!(await wants(providerRoutingKey(event)))) return { ignored: 'unwanted' }
        if (!(await isConnected(event.Realm))) {
          log.warn(
            { process, transactionId: event.Id, realm: event.Realm },
            'change starts no run because its company is not connected',
          )
          return { ignored: 'unknown_realm' }
        }
        const transaction = startedByChange(event)
        const seconds = debounceSecondsOf(processes.get(process)?.on ?? [], event)
        if (seconds === undefined) return { transaction, by: undefined }
        const Debounce = { Key: debounceKeyOf(event), Seconds: seconds }
        return { transaction: { ...transaction, Debounce }, by: undefined }
      },
      count,
    },
    deps,
  )
}

/** Has the objects read that events of the queues `changes.<Process>` name, if runs wait for them. */
export const startLookIntake = (
  deps: EventIntakeDeps & { readonly looks: Pick<Looks, 'changed'> },
): MessageIntake =>
  startEventIntake<'seen'>(
    CHANGES_QUEUES,
    {
      async read(process, message) {
        const event = readEvent(message, FORMAT)
        if ('reason' in event) return event
        await deps.looks.changed(process, event)
        return { ignored: 'seen' }
      },
    },
    deps,
  )

/** Returns the transaction that an event starts. */
export const startedByChange = (event: ProviderEvent): QueueTransaction => ({
  TransactionID: event.Id,
  Realm: event.Realm,
  InitialData: changeOf(event),
})

/** Returns the event of a dead letter that is a provider event; `null` if it is not one. */
export const changeOfLetter = (content: Buffer): ProviderEvent | null =>
  eventOfLetter(content, FORMAT)
