import { onQueue } from '@integration-host/shared/contracts/provider-event'
import { startQueue } from '@integration-host/shared/contracts/start-message'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { isStartable, type ProcessDefinition } from '../../step/definition.ts'

/** The number of messages that wait in one queue. They start runs when a coordinator consumes them. */
export interface WaitingMessages {
  readonly process: string
  readonly kind: 'start' | 'on'
  readonly count: number
}

/**
 * Counts the waiting messages of the queues `start.<Process>` and `on.<Process>`. A queue that cannot be read is left
 * out.
 */
export async function countWaitingMessages(
  bus: Pick<MessageBus, 'depth'>,
  processes: Iterable<ProcessDefinition>,
): Promise<readonly WaitingMessages[]> {
  const queues = [...processes].flatMap((process) => [
    ...(isStartable(process)
      ? [{ process: process.name, kind: 'start', queue: startQueue(process.name) } as const]
      : []),
    ...(process.on.length > 0
      ? [{ process: process.name, kind: 'on', queue: onQueue(process.name) } as const]
      : []),
  ])
  const counted = await Promise.all(
    queues.map(async ({ queue, ...of }) => ({ ...of, depth: await bus.depth(queue) })),
  )
  return counted.flatMap(({ depth, ...of }) =>
    depth === null ? [] : [{ ...of, count: depth.ready }],
  )
}
