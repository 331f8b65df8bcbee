/**
 * The live connection. A browser allows only six connections to a host, so all tabs of a browser share one event
 * stream. The tab with the lock reads the stream and passes each event to the other tabs. When this tab closes, another
 * one gets the lock and continues after the last event.
 */
import type { QueryClient, QueryKey } from '@tanstack/react-query'
import { useSyncExternalStore } from 'react'
import { serverTimeText, setServerTime } from './clock.ts'
import { setAnswered } from './reach.ts'

export type LiveState = 'connecting' | 'live' | 'lost'

interface StreamEvent {
  readonly name: string
  readonly id: string
  readonly data: string
}

type Message = { readonly event: StreamEvent } | { readonly state: LiveState }

const EVENTS = ['hello', 'current', 'reset', 'now', 'services', 'runs', 'bye'] as const
/** A shown page is read again after changes at most once in this interval. */
const READ_AGAIN_MS = 2_000
/** The lists that change together with the first page. */
const LISTS = ['companies', 'company', 'processes', 'dead-letters', 'activity'] as const
const RETRY_MS = 2_000

/** The transactions that have changed, as process and id. If `More` is true, further ones may have changed. */
interface RunsFrame {
  readonly Runs: readonly (readonly [process: string, id: string])[]
  readonly More: boolean
}
const CHANNEL = 'console-stream'

let state: LiveState = 'connecting'
/** The time at which the connection was lost, by the server's clock; `null` while there is a connection. */
let lostSince: string | null = null
const listeners = new Set<() => void>()

function setState(next: LiveState): void {
  if (state === next) return
  state = next
  lostSince = next === 'lost' ? serverTimeText() : null
  if (next === 'live') setAnswered(true)
  for (const listener of listeners) listener()
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => void listeners.delete(listener)
}

export const useLiveState = (): LiveState => useSyncExternalStore(subscribe, () => state)

/** Returns the time since which there is no connection; `null` while there is one. */
export const useLostSince = (): string | null => useSyncExternalStore(subscribe, () => lostSince)

/**
 * Repeats the read of everything that is shown, with two exceptions. The session is read whenever the stream ends. The
 * visible rows of the list of runs are read by a separate query.
 */
export const readAllAgain = (queries: QueryClient): Promise<void> =>
  queries.invalidateQueries({
    predicate: ({ queryKey: [name] }) => name !== 'session' && name !== 'run-pages',
  })

/** Follows the event stream until the returned function is called. `queries` has the cache of the pages. */
export function followStream(queries: QueryClient): () => void {
  const closing = new AbortController()
  const { signal } = closing
  const channel = new BroadcastChannel(CHANNEL)
  let lastId: string | null = null

  const waiting = new Map<string, QueryKey>()
  let readTimer = 0
  let isReading = false
  /**
   * Repeats the reads of the shown pages with this key. They are delayed if the previous read was within the interval.
   */
  function readAgain(queryKey: QueryKey): void {
    if (queries.getQueryCache().findAll({ queryKey, type: 'active' }).length === 0) return
    waiting.set(JSON.stringify(queryKey), queryKey)
    if (!isReading) void flush()
  }
  async function flush(): Promise<void> {
    isReading = waiting.size > 0
    if (!isReading || signal.aborted) return
    const keys = [...waiting.values()]
    waiting.clear()
    // A new read would cancel the previous one. Therefore, the next read waits for the end of a read that takes longer
    // than the interval.
    await Promise.all(keys.map((queryKey) => queries.invalidateQueries({ queryKey })))
    if (!signal.aborted) readTimer = setTimeout(() => void flush(), READ_AGAIN_MS)
  }

  function apply({ name, id, data }: StreamEvent): void {
    if (id !== '') lastId = id
    switch (name) {
      case 'hello':
        setServerTime((JSON.parse(data) as { Now: string }).Now, Date.now())
        break
      case 'current':
      case 'reset':
        void readAllAgain(queries)
        break
      case 'now':
      case 'services':
        queries.setQueryData([name], JSON.parse(data))
        for (const list of LISTS) readAgain([list])
        break
      case 'runs': {
        const { Runs, More } = JSON.parse(data) as RunsFrame
        readAgain(['runs'])
        if (More) readAgain(['run'])
        else for (const run of Runs) readAgain(['run', ...run])
        break
      }
      case 'bye':
        void queries.invalidateQueries({ queryKey: ['session'] })
        break
    }
  }

  channel.addEventListener('message', ({ data }: MessageEvent<Message>) => {
    receive(data)
  })
  function receive(message: Message): void {
    if ('event' in message) apply(message.event)
    else {
      // Reading the session shows whether the requests of this tab get responses.
      if (message.state === 'lost') void queries.invalidateQueries({ queryKey: ['session'] })
      setState(message.state)
    }
  }
  function share(message: Message): void {
    channel.postMessage(message)
    receive(message)
  }

  const lead = (): Promise<void> =>
    new Promise((resolve) => {
      let source: EventSource | null = null
      let retry = 0
      const connect = (): void => {
        source = new EventSource(
          lastId === null ? '/api/stream' : `/api/stream?after=${encodeURIComponent(lastId)}`,
        )
        source.addEventListener('open', () => share({ state: 'live' }))
        for (const name of EVENTS)
          source.addEventListener(name, ({ lastEventId, data }: MessageEvent<string>) => {
            share({ event: { name, id: lastEventId, data } })
            if (name === 'bye') reconnect()
          })
        source.addEventListener('error', reconnect)
      }
      const reconnect = (): void => {
        source?.close()
        // The tabs then also read the session, because the stream is closed when the session has ended.
        share({ state: 'lost' })
        clearTimeout(retry)
        if (!signal.aborted) retry = setTimeout(connect, RETRY_MS + Math.random() * 1_000)
      }
      // A stream that has lost its network may report no error for minutes.
      window.addEventListener('offline', reconnect, { signal })
      window.addEventListener(
        'online',
        () => {
          clearTimeout(retry)
          source?.close()
          connect()
        },
        { signal },
      )
      signal.addEventListener('abort', () => {
        clearTimeout(retry)
        source?.close()
        resolve()
      })
      connect()
    })

  // Browsers offer locks only on https and loopback addresses. The console has no other addresses.
  void navigator.locks.request(CHANNEL, { signal }, lead).catch(() => {})
  // A tab without the lock gets no `open` event. It counts as live once the page was read.
  if (state === 'connecting') setTimeout(() => state === 'connecting' && setState('live'), RETRY_MS)
  return () => {
    closing.abort()
    clearTimeout(readTimer)
    channel.close()
    state = 'connecting'
  }
}
