/** Reads the event stream of the coordinator permanently. */
import { setTimeout as delay } from 'node:timers/promises'
import { readEvents } from '@integration-host/shared/http/event-stream'
import { parseJson } from '@integration-host/shared/json'
import { backoffMs } from '@integration-host/shared/process/backoff'
import { Transition } from '../../view/transition.ts'
import type { ServiceClient } from './service-client.ts'

/** The coordinator writes a comment every 15 s. A connection without an event or a comment for this time is closed. */
const SILENCE_MS = 45_000

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
 */
export async function followTransitions(
  coordinator: ServiceClient,
  { onEvent, onGap }: TransitionListener,
  signal: AbortSignal,
): Promise<void> {
  let lastId: string | null = null
  let attempts = 0
  let failures = 0

  async function readOnce(): Promise<void> {
    attempts += 1
    const closing = new AbortController()
    const headers = lastId === null ? {} : { 'Last-Event-ID': lastId }
    const response = await coordinator.open(
      '/events?coalesce=true',
      headers,
      AbortSignal.any([signal, closing.signal]),
    )
    // Without the id of an event the coordinator cannot know where to continue.
    if (attempts > 1 && lastId === null) onGap()
    const silence = setTimeout(() => closing.abort(), SILENCE_MS)
    try {
      for await (const received of readEvents(response)) {
        silence.refresh()
        failures = 0
        if (received?.name === 'reset') onGap()
        if (received?.name !== 'transaction') continue
        const event = Transition.safeParse(parseJson(received.data))
        if (event.success) onEvent(event.data)
        lastId = received.id ?? lastId
      }
    } finally {
      clearTimeout(silence)
      closing.abort()
    }
  }

  while (!signal.aborted) {
    // A lost connection is not reported, because usually a coordinator has restarted. If the coordinator is down, the
    // page Health shows this.
    await readOnce().catch(() => {})
    failures += 1
    const pauseMs = backoffMs(failures, {
      baseMs: 500,
      capMs: 15_000,
      random: 0.5 + Math.random() / 2,
    })
    await delay(pauseMs, undefined, { signal }).catch(() => {})
  }
}
