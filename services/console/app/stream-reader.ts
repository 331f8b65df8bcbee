/** Reads the event stream of the console, and reconnects until the caller ends the reading. */
import type { Frame } from './live.ts'

const EVENTS = ['hello', 'current', 'reset', 'now', 'services', 'runs', 'acted', 'bye'] as const
const RETRY_MS = 2_000
/** The console sends the first event at once. If none arrives in this time, a proxy keeps the events back. */
const HELLO_MS = 10_000
const FAILURES = 3
const FAILURES_WITHIN_MS = 60_000

export interface StreamReader {
  /** Returns the id of the last event, after which the stream continues; `null` if there was none. */
  readonly lastId: () => string | null
  readonly onEvent: (event: Frame) => void
  /** Called when the stream delivers events. */
  readonly onLive: () => void
  /** Called when the stream has ended. `isFailing` is true after three failed attempts within a minute. */
  readonly onLost: (isFailing: boolean) => void
}

/** Reads the stream until the signal is aborted. */
export function readStream(reader: StreamReader, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    let source: EventSource | null = null
    let timer = 0
    /** The times at which an attempt ended without an event. */
    let failures: readonly number[] = []
    let hasBegun = false

    function connect(): void {
      const id = reader.lastId()
      hasBegun = false
      source = new EventSource(
        id === null ? '/api/stream' : `/api/stream?after=${encodeURIComponent(id)}`,
      )
      for (const name of EVENTS)
        source.addEventListener(name, ({ lastEventId, data }: MessageEvent<string>) => {
          if (!hasBegun) begin()
          reader.onEvent({ name, id: lastEventId, data })
          if (name === 'bye') reconnect()
        })
      source.addEventListener('error', reconnect)
      clearTimeout(timer)
      timer = setTimeout(reconnect, HELLO_MS)
    }
    function begin(): void {
      hasBegun = true
      failures = []
      clearTimeout(timer)
      reader.onLive()
    }
    function reconnect(): void {
      source?.close()
      const now = performance.now()
      if (!hasBegun) failures = [...failures.filter((at) => now - at < FAILURES_WITHIN_MS), now]
      reader.onLost(failures.length >= FAILURES)
      clearTimeout(timer)
      if (!signal.aborted) timer = setTimeout(connect, RETRY_MS + Math.random() * 1_000)
    }

    // When the network is lost, the stream may report no error for minutes. Therefore the browser's event `offline`
    // also closes the stream.
    window.addEventListener('offline', reconnect, { signal })
    window.addEventListener(
      'online',
      () => {
        source?.close()
        connect()
      },
      { signal },
    )
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      source?.close()
      resolve()
    })
    connect()
  })
}
