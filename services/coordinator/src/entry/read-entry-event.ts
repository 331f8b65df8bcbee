import {
  EntryEvent,
  entryEventId,
  entryRoutingKey,
} from '@integration-host/shared/contracts/provider-event'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { parseMessageAs } from '@integration-host/shared/json'
import { misaddressed } from '@integration-host/shared/messaging/message-bus'
import type { ChangeMessage } from '../change/change-queue.ts'
import { entryChangeOf } from '../step/entry-trigger.ts'

/** The maximum size of an event. The names of the changed fields can be long. */
const MAX_BYTES = 65_536

/** Returns the event of a message, or the reason why the message is dead-lettered. */
export function readEntryEvent({
  content,
  address,
}: Pick<ChangeMessage, 'content' | 'address'>): EntryEvent | { readonly reason: string } {
  if (content.length > MAX_BYTES)
    return { reason: `payload_too_large: may have at most ${MAX_BYTES} bytes` }
  const event = parseMessageAs(EntryEvent, content)
  if (event === null) return { reason: 'malformed: the message is not an event of an entry' }
  // One change could otherwise start several runs.
  if (event.Id !== entryEventId(event))
    return { reason: 'invalid_request: Id is not the id of this change' }
  const reason = misaddressed(address, entryRoutingKey(event))
  return reason === null ? event : { reason }
}

/** Returns the transaction that an event starts. */
export const startedByEntry = (event: EntryEvent): QueueTransaction => ({
  TransactionID: event.Id,
  Realm: event.Realm,
  InitialData: entryChangeOf(event),
})

/** Returns the transaction of a dead letter that is an event of an entry; `null` if it is not such an event. */
export function startedByEntryLetter(content: Buffer): QueueTransaction | null {
  const event = parseMessageAs(EntryEvent, content)
  return event === null || event.Id !== entryEventId(event) ? null : startedByEntry(event)
}
