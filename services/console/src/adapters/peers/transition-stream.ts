/** Reads the event stream of the coordinator permanently. */
import { setTimeout as delay } from 'node:timers/promises'
import { parseJson } from '@integration-host/shared/json'
import { backoffMs } from '@integration-host/shared/process/backoff'
import { Transition } from '../../view/transition.ts'
import type { ServiceClient } from './service-client.ts'

/** The coordinator writes a comment every 15 s. A connection without any bytes for this time is closed. */
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
      for await (const { name, id, data } of eventsOf(response, () => silence.refresh())) {
        failures = 0
        if (name === 'reset') onGap()
        if (name !== 'transaction') continue
        const event = Transition.safeParse(parseJson(data))
        if (event.success) onEvent(event.data)
        lastId = id ?? lastId
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

interface ServerEvent {
  readonly name: string
  readonly id: string | null
  readonly data: string
}

const MAX_EVENT_CHARACTERS = 1_048_576

/** Parses a stream of server-sent events. `onBytes` is called for each chunk. */
async function* eventsOf(response: Response, onBytes: () => void): AsyncGenerator<ServerEvent> {
  // A TextDecoderStream would cost more time for each chunk than everything else here.
  const decoder = new TextDecoder()
  const chunks: AsyncIterable<Uint8Array> | readonly Uint8Array[] = response.body ?? []
  let text = ''
  for await (const chunk of chunks) {
    onBytes()
    // Only the new part is searched, because a long event may arrive in many chunks.
    const searchedFrom = Math.max(0, text.length - 1)
    text += decoder.decode(chunk, { stream: true })
    if (text.indexOf('\n\n', searchedFrom) === -1) {
      if (text.length > MAX_EVENT_CHARACTERS) throw new Error('an event of the stream is too long')
      continue
    }
    const blocks = text.split('\n\n')
    text = blocks.pop() ?? ''
    for (const block of blocks) yield eventOf(block)
  }
}

function eventOf(block: string): ServerEvent {
  let name = 'message'
  let id: string | null = null
  let data = ''
  for (const line of block.split('\n'))
    if (line.startsWith('data: ')) data = line.slice(6)
    else if (line.startsWith('id: ')) id = line.slice(4)
    else if (line.startsWith('event: ')) name = line.slice(7)
  return { name, id, data }
}
