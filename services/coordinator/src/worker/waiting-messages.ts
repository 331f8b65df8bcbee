import {
  entriesQueue,
  changesQueue,
  onQueue,
} from '@integration-host/shared/contracts/provider-event'
import { startQueue } from '@integration-host/shared/contracts/topology'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { hasChanges, isStartable, type ProcessDefinition } from '../step/definition.ts'

/** The number of messages that wait in one queue, `<kind>.<process>`, until a coordinator consumes them. */
export interface WaitingMessages {
  readonly process: string
  readonly kind: string
  readonly count: number
}

/**
 * Counts the waiting messages of the queues `start.<Process>`, `on.<Process>`, `changes.<Process>` and
 * `entries.<Process>`. A queue that cannot be read is left out.
 */
export async function countWaitingMessages(
  bus: Pick<MessageBus, 'depth'>,
  processes: Iterable<ProcessDefinition>,
): Promise<readonly WaitingMessages[]> {
  const queues = [...processes].flatMap((definition) => {
    const { name: process, on, entryOn } = definition
    return [
      { kind: 'start', queue: startQueue(process), exists: isStartable(definition) },
      { kind: 'on', queue: onQueue(process), exists: on.length > 0 },
      { kind: 'changes', queue: changesQueue(process), exists: hasChanges(definition) },
      { kind: 'entries', queue: entriesQueue(process), exists: entryOn.length > 0 },
    ].flatMap(({ exists, ...queue }) => (exists ? [{ process, ...queue }] : []))
  })
  const counted = await Promise.all(
    queues.map(async ({ queue, ...of }) => ({ ...of, depth: await bus.depth(queue) })),
  )
  return counted.flatMap(({ depth, ...of }) =>
    depth === null ? [] : [{ ...of, count: depth.ready }],
  )
}
