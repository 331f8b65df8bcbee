/** Queues a run for each event of the queues `entries.<Process>`: an object that runs have written was changed or is gone. */
import {
  entriesQueue,
  EntryEvent,
  entryEventId,
  entryEventKinds,
  entryRoutingKey,
  providerEntities,
} from '@integration-host/shared/contracts/provider-event'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import {
  type EventFormat,
  type EventIntakeDeps,
  eventOfLetter,
  type EventQueues,
  readEvent,
  startEventIntake,
} from '../change/event-intake.ts'
import { entryChangeOf, entryKeysOf } from '../step/entry-trigger.ts'
import type { MessageIntake } from '../worker/message-intake.ts'

export const ENTRIES_QUEUES: EventQueues = {
  kind: 'entry event',
  queueOf: entriesQueue,
  keysOf: ({ entryOn }) => entryKeysOf(entryOn),
  allKeys: entryKeysOf(providerEntities.map((entity) => ({ entry: entryEventKinds, entity }))),
}

/** The names of the changed fields can be long. */
const FORMAT: EventFormat<EntryEvent> = {
  schema: EntryEvent,
  what: 'an event of an entry',
  maxBytes: 65_536,
  idOf: entryEventId,
  keyOf: entryRoutingKey,
}

export const startEntryIntake = (deps: EventIntakeDeps): MessageIntake =>
  startEventIntake<'unwanted'>(
    ENTRIES_QUEUES,
    {
      async read(_, message, wants) {
        const event = readEvent(message, FORMAT)
        if ('reason' in event) return event
        if (!(await wants(entryRoutingKey(event)))) return { ignored: 'unwanted' }
        return { transaction: startedByEntry(event), by: undefined }
      },
    },
    deps,
  )

const startedByEntry = (event: EntryEvent): QueueTransaction => ({
  TransactionID: event.Id,
  Realm: event.Realm,
  InitialData: entryChangeOf(event),
})

/** Returns the transaction of a dead letter that is an event of an entry; `null` if it is not such an event. */
export function startedByEntryLetter(content: Buffer): QueueTransaction | null {
  const event = eventOfLetter(content, FORMAT)
  return event && startedByEntry(event)
}
