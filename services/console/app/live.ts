/**
 * The live connection. A browser allows only six connections to a host, so all tabs of a browser share one event
 * stream. The tab with the lock reads the stream and passes each event to the other tabs. When this tab closes, another
 * tab gets the lock and continues after the last event.
 *
 * L1  If the stream fails three times within a minute, every tab requests the data of its page every 5 s instead. The
 *     tab with the lock keeps trying the stream, and all tabs use the stream again as soon as the stream delivers events.
 * L2  In a browser without locks, at most three tabs each open a stream. All other tabs request the data of
 *     their pages every 5 s.
 */
import type { QueryClient, QueryKey } from '@tanstack/react-query'
import type { NowView } from '../src/contracts/now.ts'
import { call } from './api.ts'
import { serverTimeText } from './clock.ts'
import { setAnswered } from './reach.ts'
import { createReadAgain } from './read-again.ts'
import { setServerTime } from './server-clock.ts'
import { createStore } from './store.ts'
import { readStream } from './stream-reader.ts'

export type LiveState = 'connecting' | 'live' | 'polling' | 'lost'

/** An event of the stream. */
export interface Frame {
  readonly name: string
  readonly id: string
  readonly data: string
}

/**
 * A message between tabs. The tab that reads the stream sends its events and its state, and a new tab requests the
 * state.
 */
type Message = { readonly event: Frame } | { readonly state: LiveState } | 'which state?'

/** The queries that are repeated whenever the page Now has changed. */
const LISTS = ['companies', 'company', 'processes', 'dead-letters', 'activity'] as const
/** The queries that are repeated when a person has acted at the console. The page Now gets its state in frames. */
const ACTED_ON = [...LISTS, 'runs', 'run', 'bulk', 'sandbox'] as const
const POLL_MS = 5_000
/** How long a new tab waits for the other tabs to report their state. */
const STATE_REPORTED_MS = 1_000
/** The maximum number of streams in a browser without locks. */
const MAX_STREAMS = 3

/**
 * What the pages of runs show of the page Now, as a text that changes with it: the services that do not respond, and how
 * many companies must be reconnected.
 */
const shownWithRuns = (now: NowView | undefined): string =>
  [
    now?.Companies?.MustReconnect,
    ...(now?.Conditions ?? [])
      .filter(({ Name }) => Name === 'ServiceDown')
      .map(({ Key }) => Key)
      .toSorted(),
  ].join('\n')

/** The transactions that have changed, as process and id. If `More` is true, further transactions may have changed. */
interface RunsFrame {
  readonly Runs: readonly (readonly [process: string, id: string])[]
  readonly More: boolean
}
const CHANNEL = 'console-stream'

/** The names of the events that contain the whole state of their part of the console. */
type StateName = 'now' | 'services'
/** How many of these events this tab has got. */
const received: Record<StateName, number> = { now: 0, services: 0 }

/**
 * Reads the state of a part of the console. If an event with this state arrives meanwhile, the event is newer than the
 * response, and its state is returned.
 */
export async function readState<View>(name: StateName, queries: QueryClient): Promise<View> {
  const before = received[name]
  const view = await call<View>('GET', `/${name}`)
  return received[name] === before ? view : (queries.getQueryData<View>([name]) ?? view)
}

interface Connection {
  readonly state: LiveState
  /** The time at which the connection was lost, by the server's clock; `null` while there is a connection. */
  readonly lostSince: string | null
}
const connection = createStore<Connection>({ state: 'connecting', lostSince: null })

function setState(state: LiveState): void {
  if (connection.get().state === state) return
  connection.set({ state, lostSince: state === 'lost' ? serverTimeText() : null })
  if (state === 'live') setAnswered(true)
}

export const useLiveState = (): LiveState => connection.use(({ state }) => state)

/** Returns the time since which there is no connection; `null` while the connection exists. */
export const useLostSince = (): string | null => connection.use(({ lostSince }) => lostSince)

/**
 * The queries that `readAllAgain` does not repeat. The session is read whenever the stream ends, and the visible rows
 * of the list of runs are read by a separate query.
 */
const READ_SEPARATELY: readonly unknown[] = ['session', 'run-pages']

/** Repeats the queries of everything that the page shows. */
export const readAllAgain = (queries: QueryClient): Promise<void> =>
  queries.invalidateQueries({
    predicate: ({ queryKey: [name] }) => !READ_SEPARATELY.includes(name),
  })

/** Resolves after this time, or when the signal is aborted. */
const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      resolve()
    })
  })

/** Follows the event stream until the returned function is called. `queries` contains the cached data of the pages. */
export function followStream(queries: QueryClient): () => void {
  const closing = new AbortController()
  const { signal } = closing
  const channel = new BroadcastChannel(CHANNEL)
  let lastId: string | null = null

  /** Whether this tab reads the stream. */
  let isReading = false

  const readAgain = createReadAgain((queryKey: QueryKey) => queries.invalidateQueries({ queryKey }))
  /** Repeats each query whose key begins with `queryKey`, if a shown page uses the query. */
  function changed(queryKey: QueryKey, hasActed = false): void {
    if (queries.getQueryCache().findAll({ queryKey, type: 'active' }).length > 0)
      readAgain.request(queryKey, hasActed)
  }

  /** Stops the reads that this tab makes every 5 s; `null` if this tab does not make such reads. */
  let polling: AbortController | null = null
  async function poll({ signal: ended }: AbortController): Promise<void> {
    while (!ended.aborted) {
      try {
        const now = await call<NowView>('GET', '/now')
        if (ended.aborted) return
        queries.setQueryData(['now'], now)
        setState('polling')
        await queries.invalidateQueries({
          predicate: ({ queryKey: [name = ''] }) => ![...READ_SEPARATELY, 'now'].includes(name),
        })
      } catch {
        if (ended.aborted) return
        setState('lost')
        void queries.invalidateQueries({ queryKey: ['session'] })
      }
      await pause(POLL_MS, ended)
    }
  }
  function setPolling(next: boolean): void {
    if (next === (polling !== null)) return
    polling?.abort()
    polling = next ? new AbortController() : null
    if (polling !== null) void poll(polling)
  }

  function apply({ name, id, data }: Frame): void {
    if (id !== '') lastId = id
    switch (name) {
      case 'hello':
        setServerTime((JSON.parse(data) as { Now: string }).Now)
        break
      case 'current':
      case 'reset':
        void readAllAgain(queries)
        break
      case 'now': {
        const before = queries.getQueryData<NowView>(['now'])
        const now = JSON.parse(data) as NowView
        received.now += 1
        queries.setQueryData(['now'], now)
        for (const list of LISTS) changed([list])
        // The coordinator does not report these changes. The pages of runs are read again, so that they say what is missing.
        if (shownWithRuns(before) !== shownWithRuns(now))
          for (const list of ['runs', 'run', 'bulk']) changed([list])
        break
      }
      case 'services':
        received.services += 1
        queries.setQueryData([name], JSON.parse(data))
        for (const list of LISTS) changed([list])
        break
      case 'runs': {
        const { Runs, More } = JSON.parse(data) as RunsFrame
        changed(['runs'])
        if (More) changed(['run'])
        else for (const run of Runs) changed(['run', ...run])
        break
      }
      case 'acted':
        for (const acted of ACTED_ON) changed([acted], true)
        break
      case 'bye':
        void queries.invalidateQueries({ queryKey: ['session'] })
        break
    }
  }

  const hasLocks = 'locks' in navigator
  /** The number of tabs that have reported that they read a stream. */
  let reported = 0
  channel.addEventListener('message', ({ data }: MessageEvent<Message>) => {
    if (data === 'which state?') {
      if (isReading)
        channel.postMessage({ state: polling === null ? connection.get().state : 'polling' })
    } else if (hasLocks) receive(data)
    else reported += 1
  })
  function receive(message: Exclude<Message, string>): void {
    if ('event' in message) {
      apply(message.event)
      return
    }
    setPolling(message.state === 'polling')
    if (message.state === 'polling') return
    // Reading the session shows whether the requests of this tab get responses.
    if (message.state === 'lost') void queries.invalidateQueries({ queryKey: ['session'] })
    setState(message.state)
  }

  /** Reads the stream. If `isShared` is true, the other tabs get the events of the stream. */
  function lead(isShared: boolean): Promise<void> {
    const share = (message: Exclude<Message, string>): void => {
      if (isShared) channel.postMessage(message)
      receive(message)
    }
    isReading = true
    return readStream(
      {
        lastId: () => lastId,
        onEvent: (event) => share({ event }),
        onLive: () => share({ state: 'live' }),
        onLost(isFailing) {
          // While the tabs read every 5 s (L1), a further failure of the stream changes nothing.
          if (polling === null) share({ state: isFailing ? 'polling' : 'lost' })
        },
      },
      signal,
    )
  }

  /** Reads a stream as soon as fewer than three tabs do (L2). */
  async function leadWithoutLock(): Promise<void> {
    while (!signal.aborted) {
      reported = 0
      channel.postMessage('which state?')
      await pause(STATE_REPORTED_MS, signal)
      if (reported < MAX_STREAMS) return lead(false)
      setPolling(true)
      await pause(POLL_MS, signal)
    }
    return undefined
  }

  if (hasLocks) {
    channel.postMessage('which state?')
    void navigator.locks.request(CHANNEL, { signal }, () => lead(true)).catch(() => {})
    // A tab without the lock assumes that the stream works unless the tab with the lock has reported another state.
    void pause(STATE_REPORTED_MS, signal).then(() => {
      if (connection.get().state === 'connecting' && !isReading && polling === null)
        setState('live')
    })
  } else void leadWithoutLock()
  return () => {
    closing.abort()
    readAgain.stop()
    setPolling(false)
    channel.close()
    setState('connecting')
  }
}
