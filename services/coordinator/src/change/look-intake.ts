/** Has the objects read that provider events of the queues `changes.<Process>` name, if runs wait for them. */
import { watchedKeysOf } from '../step/change-place.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import {
  type MessageIntake,
  type MessageIntakeDeps,
  startMessageIntake,
} from '../worker/message-intake.ts'
import { createBindings } from './bindings.ts'
import type { ChangeMessage, ChangeQueue } from './change-queue.ts'
import type { Looks } from './look.ts'
import { readEvent } from './read-change.ts'
import type { Subscriptions } from './subscriptions.ts'

export interface LookIntakeDeps extends Omit<
  MessageIntakeDeps<ChangeMessage, 'seen'>,
  'kind' | 'queues' | 'read' | 'prepare' | 'processes' | 'queue' | 'count'
> {
  readonly subscriptions: Pick<Subscriptions, 'keepSubscriptions'>
  readonly queue: ChangeQueue
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly looks: Pick<Looks, 'changed'>
}

export function startLookIntake(deps: LookIntakeDeps): MessageIntake {
  const bindings = createBindings({
    ...deps,
    keysOf: watchedKeysOf,
    // A process cannot have a name with a dot, so the subscriptions of `on` have other names.
    storedAs: (process) => `changes.${process}`,
  })
  return startMessageIntake<ChangeMessage, 'seen'>({
    ...deps,
    kind: 'provider event',
    queues: 'changes.*',
    async read(process, message) {
      const event = readEvent(message)
      if ('reason' in event) return event
      await deps.looks.changed(process, event)
      return { ignored: 'seen' }
    },
    count: () => {},
    processes: bindings.names,
    prepare: () => bindings.prepare(),
  })
}
