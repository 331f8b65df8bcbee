/** Queues a run for each event of the queues `entries.<Process>`: an object that runs have written was changed or is gone. */
import {
  entryEventKinds,
  entryRoutingKey,
  providerEntities,
} from '@integration-host/shared/contracts/provider-event'
import { createBindings } from '../change/bindings.ts'
import type { ChangeMessage, ChangeQueue } from '../change/change-queue.ts'
import type { Subscriptions } from '../change/subscriptions.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import { entryKeysOf } from '../step/entry-trigger.ts'
import {
  type MessageIntake,
  type MessageIntakeDeps,
  startMessageIntake,
} from '../worker/message-intake.ts'
import { readEntryEvent, startedByEntry } from './read-entry-event.ts'

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
    kind: 'entry event',
    queues: 'entries.*',
    async read(process, message) {
      const event = readEntryEvent(message)
      if ('reason' in event) return event
      if (!(await bindings.wants(process, entryRoutingKey(event)))) return { ignored: 'unwanted' }
      return { transaction: startedByEntry(event), by: undefined }
    },
    // The same change may be found with other fields if it is compared again.
    ignoresConflicts: true,
    count: () => {},
    processes: bindings.names,
    prepare: () => bindings.prepare(),
  })
}
