import { followEvents, openEvents } from '@integration-host/client/events'
import { parseJson } from '@integration-host/shared/json'
import { backoffMs } from '@integration-host/shared/process/backoff'
import { Transition } from '../../view/run-tracker.ts'
import type { ServiceClient } from './service-client.ts'

export interface TransitionListener {
  readonly onEvent: (event: Transition) => void
  /** Called when transitions may have been missed. Any run may then have changed. */
  readonly onGap: () => void
}

/**
 * Follows `GET /events?coalesce=true` until `signal` is aborted. After a lost connection the stream continues after the
 * last event, and contains the newest state of each run that has changed meanwhile, if the coordinator still has it.
 * `onGap` is called if changes may have been missed nevertheless. A missed transition makes the counts wrong only until
 * the coordinator counts again.
 *
 * A lost connection is not reported, because usually a coordinator has restarted. If the coordinator is down, the page
 * Health shows this.
 */
export function followTransitions(
  coordinator: Pick<ServiceClient, 'open'>,
  { onEvent, onGap }: TransitionListener,
  signal: AbortSignal,
): Promise<void> {
  let attempts = 0
  return followEvents(
    {
      open(lastId, connection) {
        attempts += 1
        return openEvents(coordinator, '/events?coalesce=true', lastId, connection)
      },
      onEvent({ name, data }) {
        const event = Transition.safeParse(name === 'transaction' ? parseJson(data) : null)
        if (event.success) onEvent(event.data)
      },
      onGap() {
        if (attempts > 1) onGap() // before the first connection nothing was shown
      },
      pauseMs: (failures) =>
        backoffMs(failures, { baseMs: 500, capMs: 15_000, random: 0.5 + Math.random() / 2 }),
    },
    signal,
  )
}
