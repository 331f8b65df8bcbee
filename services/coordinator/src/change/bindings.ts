/**
 * Keeps the bindings of the queues of provider events of one kind, `on.<Process>` or `changes.<Process>`.
 *
 * B1  Before a replica declares the binding of a routing key, and again at each check, it stores that it subscribes to
 *     the key.
 * B2  A binding is removed only if no replica has stored the routing key of the binding for a while. So two replicas
 *     with different versions of a definition do not remove each other's bindings.
 */
import { providerRoutingKeys } from '@integration-host/shared/contracts/provider-event'
import { hasCode } from '@integration-host/shared/errors'
import type { ProcessDefinition } from '../step/definition.ts'
import type { ChangeQueue } from './change-queue.ts'
import type { Subscriptions } from './subscriptions.ts'

export interface BindingsDeps {
  readonly subscriptions: Pick<Subscriptions, 'keepSubscriptions'>
  readonly queue: Pick<ChangeQueue, 'declare' | 'unbind'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  /** Returns the routing keys to which a process subscribes. */
  readonly keysOf: (process: ProcessDefinition) => readonly string[]
  /** All routing keys of which there may be bindings. Default: those of all changes at the provider. */
  readonly allKeys?: readonly string[]
  /** Returns the name under which the subscriptions of a process are stored. */
  readonly storedAs: (process: string) => string
}

export function createBindings(deps: BindingsDeps) {
  const { subscriptions, queue, processes, keysOf, storedAs, allKeys = providerRoutingKeys } = deps
  /** For each process with a queue: the routing keys to which at least one replica subscribes. */
  const wanted = new Map<string, ReadonlySet<string>>()
  /** For each process: the routing keys whose bindings this replica has removed. */
  const unbound = new Map<string, Set<string>>()
  const declared = new Map<string, string>()

  /** Stores to which events the process subscribes, and then declares and removes bindings. */
  async function follow(process: ProcessDefinition): Promise<void> {
    const { name } = process
    const own = keysOf(process)
    const kept = new Set([...own, ...(await subscriptions.keepSubscriptions(storedAs(name), own))])
    if (kept.size === 0 && !wanted.has(name)) return
    wanted.set(name, kept)
    const text = own.join(' ')
    if (declared.get(name) !== text) await queue.declare(name, own)
    declared.set(name, text)
    const removed = unbound.get(name) ?? new Set()
    for (const key of kept) removed.delete(key)
    const superfluous = allKeys.filter((key) => !kept.has(key) && !removed.has(key))
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

  return {
    /** Follows the definitions of all processes. */
    async prepare(): Promise<void> {
      for (const process of processes.values()) await follow(process)
    },
    /** Returns the names of the processes that have a queue. */
    names: (): readonly string[] => [...wanted.keys()],
    /** Returns whether at least one replica subscribes to events with this routing key for the process. */
    async wants(process: string, routingKey: string): Promise<boolean> {
      if (wanted.get(process)?.has(routingKey) === true) return true
      // Another replica may have subscribed to the key since the last check. A replica stores a key before it declares
      // the binding (B1), so no replica subscribes to a key that is not stored now.
      const definition = processes.get(process)
      const own = definition === undefined ? [] : keysOf(definition)
      return (await subscriptions.keepSubscriptions(storedAs(process), own)).includes(routingKey)
    },
  }
}
