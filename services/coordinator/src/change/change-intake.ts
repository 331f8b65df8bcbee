/**
 * Queues a run for each provider event of the queues `on.<Process>`. An event starts a run even if only another replica
 * subscribes to it. Otherwise the event would be lost, because it is delivered to only one replica.
 */
import type { ProviderEvent } from '@integration-host/shared/contracts/provider-event'
import { routingKeysOf } from '../step/change-trigger.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import { createBindings } from './bindings.ts'
import type { Subscriptions } from './subscriptions.ts'
import type { ChangeMessage, ChangeQueue } from './change-queue.ts'
import {
  type IntakeResult,
  type MessageIntake,
  type MessageIntakeDeps,
  startMessageIntake,
} from '../worker/message-intake.ts'
import { createChangeReader, type IgnoredChange } from './read-change.ts'

/** How an event was handled. */
export type ChangeResult = IntakeResult | IgnoredChange

export interface ChangeIntakeDeps extends Omit<
  MessageIntakeDeps<ChangeMessage, IgnoredChange>,
  'kind' | 'queues' | 'read' | 'ignoresConflicts' | 'prepare' | 'processes' | 'queue'
> {
  readonly subscriptions: Pick<Subscriptions, 'keepSubscriptions'>
  readonly queue: ChangeQueue
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly isConnected: (realm: string) => Promise<boolean>
  /** Called for each event that the provider has delivered. */
  readonly onDelivery: () => void
}

export function startChangeIntake(deps: ChangeIntakeDeps): MessageIntake {
  const { processes, log } = deps
  const bindings = createBindings({
    ...deps,
    keysOf: ({ on }) => routingKeysOf(on),
    storedAs: (process) => process,
  })
  const read = createChangeReader({
    wants: (...args) => bindings.wants(...args),
    triggersOf: (process) => processes.get(process)?.on ?? [],
    isConnected: deps.isConnected,
    onDelivery: deps.onDelivery,
    onUnknownRealm: (process, event: ProviderEvent) =>
      log.warn(
        { process, transactionId: event.Id, realm: event.Realm },
        'change starts no run because its company is not connected',
      ),
  })

  return startMessageIntake({
    ...deps,
    kind: 'provider event',
    queues: 'on.*',
    read,
    // Different initial data is not a conflict. The data has the kind of the change (created, updated and so on), which
    // the change feed does not always know, so two deliveries of one change can differ.
    ignoresConflicts: true,
    processes: bindings.names,
    prepare: () => bindings.prepare(),
  })
}
