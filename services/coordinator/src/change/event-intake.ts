/**
 * Consumes the queues of events: `on.<Process>`, `changes.<Process>` and `entries.<Process>`. An event is handled even if
 * only another replica subscribes to it. Otherwise it would be lost, because it is delivered to only one replica.
 *
 * B1  Before a replica declares the binding of a routing key, and again at each check, it stores that it subscribes to
 *     the key.
 * B2  A binding is removed only if no replica has stored the routing key of the binding for a while. So two replicas
 *     with different versions of a definition do not remove each other's bindings.
 */
import { PROVIDER_EXCHANGE } from '@integration-host/shared/contracts/provider-event'
import { changesTopology } from '@integration-host/shared/contracts/topology'
import { hasCode } from '@integration-host/shared/errors'
import { parseMessageAs } from '@integration-host/shared/json'
import { type MessageBus, misaddressed } from '@integration-host/shared/messaging/message-bus'
import type { z } from 'zod'
import type { ProcessDefinition } from '../step/definition.ts'
import { createIntakeQueue, type IntakeMessage } from '../worker/intake-queue.ts'
import {
  type MessageIntake,
  type MessageIntakeDeps,
  type ReadMessage,
  startMessageIntake,
} from '../worker/message-intake.ts'
import type { Subscriptions } from './subscriptions.ts'

/** The queues of one kind, and to which events they are bound. */
export interface EventQueues {
  /** The kind of event for log entries. */
  readonly kind: string
  readonly queueOf: (process: string) => string
  /** Returns the routing keys to which a process subscribes. */
  readonly keysOf: (process: ProcessDefinition) => readonly string[]
  /** All routing keys of which there may be bindings. */
  readonly allKeys: readonly string[]
  /**
   * Returns the name under which the subscriptions of a process are stored; by default the name of its queue. No process
   * has a name with a dot, so the names of two kinds differ.
   */
  readonly storedAs?: (process: string) => string
}

/** What an event consists of. Every publisher derives the id and the routing key from the change. */
export interface EventFormat<Event extends { readonly Id: string }> {
  readonly schema: z.ZodType<Event>
  readonly what: string
  readonly maxBytes: number
  readonly idOf: (event: Event) => string
  readonly keyOf: (event: Event) => string
}

/** What all intakes of events need. */
export interface EventIntakeDeps extends Omit<
  MessageIntakeDeps<never>,
  'kind' | 'queues' | 'queue' | 'read' | 'misaddressed' | 'prepare' | 'processes' | 'count'
> {
  readonly subscriptions: Pick<Subscriptions, 'keepSubscriptions'>
  readonly bus: MessageBus
  readonly owner: string
  readonly processes: ReadonlyMap<string, ProcessDefinition>
}

/** How the events of one kind of queues are handled. */
interface Handling<Ignored extends string> {
  /** `wants` resolves with whether at least one replica subscribes to events with this routing key for the process. */
  readonly read: (
    process: string,
    message: IntakeMessage,
    wants: (routingKey: string) => Promise<boolean>,
  ) => Promise<ReadMessage<Ignored>>
  readonly count?: MessageIntakeDeps<Ignored>['count']
}

/** Starts to handle the events of the queues of one kind. */
export function startEventIntake<Ignored extends string>(
  queues: EventQueues,
  { read, count = () => {} }: Handling<Ignored>,
  deps: EventIntakeDeps,
): MessageIntake {
  const { subscriptions, bus, owner, processes } = deps
  const { queueOf, keysOf, allKeys, storedAs = queueOf } = queues
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
    if (declared.get(name) !== text) await bus.declare(changesTopology(queueOf(name), name, own))
    declared.set(name, text)
    const removed = unbound.get(name) ?? new Set()
    for (const key of kept) removed.delete(key)
    const superfluous = allKeys.filter((key) => !kept.has(key) && !removed.has(key))
    const bindings = superfluous.map((routingKey) => ({ exchange: PROVIDER_EXCHANGE, routingKey }))
    if (superfluous.length > 0)
      await bus.unbind(queueOf(name), bindings).then(
        () => superfluous.forEach((key) => removed.add(key)),
        (error: unknown) => {
          // The error is ignored, because the next check retries the removal.
          if (!hasCode(error, 'broker_unavailable')) throw error
        },
      )
    unbound.set(name, removed)
  }

  async function wants(process: string, routingKey: string): Promise<boolean> {
    if (wanted.get(process)?.has(routingKey) === true) return true
    // Another replica may have subscribed to the key since the last check. A replica stores a key before it declares
    // the binding (B1), so no replica subscribes to a key that is not stored now.
    const definition = processes.get(process)
    const own = definition === undefined ? [] : keysOf(definition)
    return (await subscriptions.keepSubscriptions(storedAs(process), own)).includes(routingKey)
  }

  const queue = createIntakeQueue(bus, owner, {
    queueOf,
    // The exchange routes the event to the queues of all subscribed processes again. It starts no second run in a process
    // that has already received the event.
    copyOf: (_, { address: { routingKey } }) => ({
      exchange: PROVIDER_EXCHANGE,
      routingKey,
      type: routingKey,
    }),
    isNamedInDeadLetters: false,
    isOnlyCopy: true,
  })

  return startMessageIntake<Ignored>({
    ...deps,
    kind: queues.kind,
    queues: queueOf('*'),
    queue,
    read: (process, message) => read(process, message, (key) => wants(process, key)),
    // Different initial data is not a conflict. A change may be found with other fields if it is compared again, and the
    // change feed does not always know the kind of a change. So two events of one change can differ.
    ignoresConflicts: true,
    count,
    processes: () => [...wanted.keys()],
    async prepare() {
      for (const process of processes.values()) await follow(process)
    },
  })
}

/** Returns the event of a message, or the reason why the message is dead-lettered. */
export function readEvent<Event extends { readonly Id: string }>(
  { content, address }: Pick<IntakeMessage, 'content' | 'address'>,
  { schema, what, maxBytes, idOf, keyOf }: EventFormat<Event>,
): Event | { readonly reason: string } {
  if (content.length > maxBytes)
    return { reason: `payload_too_large: may have at most ${maxBytes} bytes` }
  const event = parseMessageAs(schema, content)
  if (event === null) return { reason: `malformed: the message is not ${what}` }
  // A message with another id is rejected, because one change could otherwise start several runs.
  if (event.Id !== idOf(event))
    return { reason: 'invalid_request: Id is not the id of this change' }
  const reason = misaddressed(address, keyOf(event))
  return reason === null ? event : { reason }
}

/** Returns the event that a dead letter contains; `null` if it is not such an event. */
export function eventOfLetter<Event extends { readonly Id: string }>(
  content: Buffer,
  { schema, idOf }: EventFormat<Event>,
): Event | null {
  const event = parseMessageAs(schema, content)
  return event === null || event.Id !== idOf(event) ? null : event
}
