/**
 * Queues a run for each provider event of the queues `on.<Process>`, and keeps the bindings of these queues.
 *
 * B1  Before a replica declares the binding of a routing key, and again at each check, it stores that it subscribes to
 *     the key.
 * B2  A binding is removed only if no replica has stored the routing key of the binding for a while. So two replicas
 *     with different versions of a definition do not remove each other's bindings.
 * B3  A consumed event starts a run even if only another replica subscribes to it. Otherwise the event would be lost,
 *     because it is delivered to only one replica.
 */
import {
  type ProviderEvent,
  providerRoutingKeys,
} from '@integration-host/shared/contracts/provider-event'
import { hasCode } from '@integration-host/shared/errors'
import { routingKeysOf } from '../step/change-trigger.ts'
import type { ProcessDefinition } from '../step/definition.ts'
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
  const { subscriptions, queue, processes, log } = deps
  /** For each process with a queue: the routing keys to which at least one replica subscribes. */
  const wanted = new Map<string, ReadonlySet<string>>()
  /** For each process: the routing keys whose bindings this replica has removed. */
  const unbound = new Map<string, Set<string>>()
  const declared = new Map<string, string>()

  /** Stores to which events the process subscribes, and then declares and removes bindings. */
  async function prepare(process: ProcessDefinition): Promise<void> {
    const { name } = process
    const own = routingKeysOf(process.on)
    const kept = new Set([...own, ...(await subscriptions.keepSubscriptions(name, own))])
    if (kept.size === 0 && !wanted.has(name)) return
    wanted.set(name, kept)
    const text = own.join(' ')
    if (declared.get(name) !== text) await queue.declare(name, own)
    declared.set(name, text)
    const removed = unbound.get(name) ?? new Set()
    for (const key of kept) removed.delete(key)
    const superfluous = providerRoutingKeys.filter((key) => !kept.has(key) && !removed.has(key))
    if (superfluous.length > 0)
      await queue.unbind(name, superfluous).then(
        () => superfluous.forEach((key) => removed.add(key)),
        (error: unknown) => {
          // The error is ignored, because the next check retries the removal.
          if (!hasCode(error, 'broker_unavailable')) throw error
        },
      )
    unbound.set(name, removed)
  }

  const read = createChangeReader({
    async wants(process, routingKey) {
      if (wanted.get(process)?.has(routingKey) === true) return true
      // Another replica may have subscribed to the key since the last check. A replica stores a key before it declares
      // the binding (B1), so no replica subscribes to a key that is not stored now.
      const own = routingKeysOf(processes.get(process)?.on ?? [])
      return (await subscriptions.keepSubscriptions(process, own)).includes(routingKey)
    },
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
    processes: () => [...wanted.keys()],
    async prepare() {
      for (const process of processes.values()) await prepare(process)
    },
  })
}
