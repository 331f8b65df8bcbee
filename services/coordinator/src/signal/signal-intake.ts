import { signalKey } from '@integration-host/shared/contracts/topology'
import { errorCodes, hasCode, IntegrationError } from '@integration-host/shared/errors'
import { misaddressed } from '@integration-host/shared/messaging/message-bus'
import { queuerOf } from '../start/start-intake.ts'
import type { IntakeMessage } from '../worker/intake-queue.ts'
import { readSignal } from './read-signal.ts'
import {
  type MessageIntake,
  type MessageIntakeDeps,
  startMessageIntake,
} from '../worker/message-intake.ts'
import type { RunActions } from '../worker/run-actions.ts'

export interface SignalIntakeDeps extends Omit<
  MessageIntakeDeps<'signalled'>,
  'kind' | 'queues' | 'misaddressed' | 'read' | 'runActions' | 'count'
> {
  readonly runActions: Pick<RunActions, 'queue' | 'signal'>
  /** The milliseconds for which a message of a run that does not exist yet is held back. */
  readonly absentMs?: number
}

const ABSENT_MS = 60_000
/** The milliseconds between two looks for a run that does not exist yet. */
const LOOK_MS = 1_000

/**
 * Sends an event to a run for each message of the queues `start.<Process>.signal`. A message for a run that does not
 * exist yet is held back for a minute, because it may have overtaken the message that starts the run.
 */
export function startSignalIntake(deps: SignalIntakeDeps): MessageIntake {
  const { runActions, clock, absentMs = ABSENT_MS } = deps
  const shutdown = new AbortController()
  const pause = async (ms: number): Promise<void> => {
    const { promise, resolve } = Promise.withResolvers<void>()
    const end = (): void => resolve()
    const timer = clock.setTimeout(end, ms)
    shutdown.signal.addEventListener('abort', end)
    await promise
    timer[Symbol.dispose]()
    shutdown.signal.removeEventListener('abort', end)
  }
  async function send(process: string, message: IntakeMessage): Promise<string | null> {
    const read = readSignal(message.content)
    if ('reason' in read) return read.reason
    const {
      TransactionID: id,
      ReplayID: replay = null,
      Event,
      EventID,
      Data,
      Reason: why,
    } = read.signal
    const event = { data: Data ?? null, eventId: EventID ?? null }
    const act = { by: queuerOf(message), reason: why ?? null, ifVersion: null }
    const until = clock.now() + absentMs
    for (;;) {
      try {
        await runActions.signal(process, id, replay, Event, event, act, false)
        return null
      } catch (error) {
        if (!(error instanceof IntegrationError) || errorCodes[error.code].status >= 500)
          throw error
        const isAbsent = hasCode(error, 'transaction_not_found')
        if (!isAbsent || clock.now() >= until)
          return error.code === 'input_invalid' ? `${error.code}: ${error.message}` : error.code
      }
      await pause(LOOK_MS)
      // The message returns to its queue.
      if (shutdown.signal.aborted)
        throw new IntegrationError('store_unavailable', 'the coordinator shuts down')
    }
  }
  const intake = startMessageIntake<'signalled'>({
    ...deps,
    kind: 'event message',
    queues: 'start.*.signal',
    misaddressed: (process, { address }) => misaddressed(address, signalKey(process)),
    async read(process, message) {
      const reason = await send(process, message)
      return reason === null ? { ignored: 'signalled' } : { reason }
    },
    count: () => {},
  })
  return {
    ...intake,
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await intake[Symbol.asyncDispose]()
    },
  }
}
