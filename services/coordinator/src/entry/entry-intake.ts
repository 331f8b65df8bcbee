/** Queues a run for each event of the queues `entries.<Process>`: an object that runs have written was changed or is gone. */
import {
  EntryEvent,
  entryEventId,
  entryEventKinds,
  entryRoutingKey,
} from '@integration-host/shared/contracts/entry-event'
import { providerEntities } from '@integration-host/shared/contracts/provider-event'
import { parseMessageAs } from '@integration-host/shared/json'
import { misaddressed } from '@integration-host/shared/messaging/misaddressed'
import { createBindings } from '../change/bindings.ts'
import type { ChangeMessage, ChangeQueue } from '../change/change-queue.ts'
import type { Subscriptions } from '../change/subscriptions.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import { entryChangeOf, entryKeysOf } from '../step/entry-trigger.ts'
import {
  type MessageIntake,
  type MessageIntakeDeps,
  startMessageIntake,
} from '../worker/message-intake.ts'

export interface EntryIntakeDeps extends Omit<
  MessageIntakeDeps<ChangeMessage, 'unwanted'>,
  'kind' | 'queues' | 'read' | 'ignoresConflicts' | 'prepare' | 'processes' | 'queue' | 'count'
> {
  readonly subscriptions: Pick<Subscriptions, 'keepSubscriptions'>
  readonly queue: ChangeQueue
  readonly processes: ReadonlyMap<string, ProcessDefinition>
}

const ALL_KEYS = entryKeysOf(providerEntities.map((entity) => ({ entry: entryEventKinds, entity })))

export function startEntryIntake(deps: EntryIntakeDeps): MessageIntake {
  const bindings = createBindings({
    ...deps,
    keysOf: ({ entryOn }) => entryKeysOf(entryOn),
    allKeys: ALL_KEYS,
    // A process cannot have a name with a dot, so the subscriptions of `on` have other names.
    storedAs: (process) => `entries.${process}`,
  })
  return startMessageIntake<ChangeMessage, 'unwanted'>({
    ...deps,
    kind: 'event of an entry',
    queues: 'entries.*',
    async read(process, { content, address }) {
      const event = parseMessageAs(EntryEvent, content)
      if (event === null) return { reason: 'malformed: the message is not an event of an entry' }
      if (event.Id !== entryEventId(event))
        return { reason: 'invalid_request: Id is not the id of this change' }
      const reason = misaddressed(address, entryRoutingKey(event))
      if (reason !== null) return { reason }
      if (!(await bindings.wants(process, entryRoutingKey(event)))) return { ignored: 'unwanted' }
      const { Id: TransactionID, Realm } = event
      return {
        transaction: { TransactionID, Realm, InitialData: entryChangeOf(event) },
        by: undefined,
      }
    },
    // The same change may be found with other fields if it is compared again.
    ignoresConflicts: true,
    count: () => {},
    processes: bindings.names,
    prepare: () => bindings.prepare(),
  })
}
