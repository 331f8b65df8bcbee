/**
 * The open streams of `GET /events`. A hundred clients that read them must hardly slow down the steps that run in the
 * same OS process. Four rules achieve this:
 *
 * E1  An event is serialised once. Events are collected for `LONGEST_BATCH_MS` into one Buffer for each filter in use,
 *     and all streams with that filter write this same Buffer, because each write also wakes the client, which costs
 *     more than the events themselves. Clients wait for the last event of a run, so this event is written at once, with
 *     those collected before it. While n streams are open, each of them is written to only every n milliseconds, so
 *     that together they make at most 1,000 writes per second. After a large batch, even the last event of a run is
 *     collected, for up to `LONGEST_BATCH_MS`.
 * E2  A stream whose client does not read is not written to. The stream keeps references to the shared Buffers instead.
 *     The client is disconnected when these Buffers exceed `MAX_UNREAD_BYTES` and are not from one batch, or when it
 *     has read nothing for `MAX_UNREAD_MS`.
 * E3  At most `WATCHERS.total` streams are open, and at most `WATCHERS.perKey` of one key.
 * E4  A client that needs only the state of the runs asks for a coalesced stream. Its events are collected for about
 *     `COALESCE_MS`, and of these only the newest event of each run and the failures are sent. They are serialised once
 *     for each filter.
 *
 * A client that was cut off reconnects with its Last-Event-ID, so it loses no event that the transition feed still has.
 */
import type { ServerResponse } from 'node:http'
import { type Caller, type PlaceLimits, Places } from '@integration-host/shared/access/caller'
import { afterThisTurn, afterWritesOfThisTurn } from '@integration-host/shared/batching'
import { IntegrationError } from '@integration-host/shared/errors'
import type {
  StreamedTransition,
  TransactionEvent,
} from '@integration-host/shared/contracts/events'
import { isOver } from '../run/status.ts'
import { eventId, type TransitionFeed } from './transaction-events.ts'
import { newestOfEachRun } from '../routes/newest-of-each-run.ts'

/** The part of Node's ServerResponse that a stream uses. */
export type StreamResponse = Pick<ServerResponse, 'write' | 'end' | 'on' | 'destroyed'> & {
  readonly socket: Pick<NonNullable<ServerResponse['socket']>, 'resetAndDestroy'> | null
}

export interface StreamOptions {
  /** The caller that reads the stream. */
  readonly caller: Pick<Caller, 'shareOf'>
  /** The process whose events the stream contains; `null` for the events of all processes. */
  readonly process: string | null
  /** Whether the events are collected for `COALESCE_MS`, and only the newest event of each run is sent. */
  readonly isCoalesced: boolean
  /** The `Last-Event-ID` of the client; `null` if the stream starts with the next event. */
  readonly lastId: string | null
  /**
   * Whether the client's key still permits reading the stream. If this becomes false, the stream is ended within a
   * second.
   */
  readonly isStillValid: () => boolean
}

export type CutReason = 'unread_bytes' | 'unread_time'

export interface EventStreamsDeps {
  readonly feed: TransitionFeed
  /** Returns the milliseconds of a monotonic clock. */
  readonly now: () => number
  /** Called for each client that was disconnected because it did not read. */
  readonly onCut: (reason: CutReason) => void
}

export const WATCHERS: PlaceLimits = { total: 100, perKey: 50 }
const MAX_UNREAD_BYTES = 1_048_576
const MAX_UNREAD_MS = 5_000
/**
 * After a batch for n streams, no batch is written for n times this number of milliseconds, because 1,000 writes a second
 * take more than a hundredth of a processor core.
 */
const MS_PER_WRITE = 1
/** After a batch of n events, no batch is written for n times this number of milliseconds, up to `LONGEST_BATCH_MS`. */
const MS_PER_EVENT = 2
const LONGEST_BATCH_MS = 20
/** The time between two batches of a coalesced stream, in milliseconds. */
export const COALESCE_MS = 1_000
/**
 * The milliseconds without an event after which an SSE comment is written to a stream. The comment shows the client and
 * proxies that the connection is alive.
 */
const KEEP_ALIVE_MS = 15_000
/**
 * The interval at which each stream is checked. A check disconnects a client that has read nothing for too long, writes
 * a comment to an idle stream, and ends a stream that the client may no longer read.
 */
const CHECK_MS = 1_000
/**
 * The maximum number of events in one Buffer. Each Buffer that a client has read shows that the client reads. The events
 * that a client has missed are serialised one Buffer at a time.
 */
const EVENTS_PER_BUFFER = 500

const CONNECTED = Buffer.from(': connected\n\n')
const RESET = Buffer.from('event: reset\ndata: {}\n\n')
const STILL_HERE = Buffer.from(': still here\n\n')

/**
 * The member of an event that stores the serialised text of the event. Each event is therefore serialised only once,
 * even if several clients have missed it and get it later.
 */
const TEXT = Symbol('text')
type KeptEvent = TransactionEvent & { [TEXT]?: string }

interface Stream {
  readonly outgoing: StreamResponse
  readonly process: string | null
  readonly isStillValid: () => boolean
  readonly channel: Channel
  readonly freePlace: () => void
  /**
   * The events since the client's Last-Event-ID that were not sent yet. They are serialised in batches while the client
   * reads.
   */
  missed: readonly TransactionEvent[]
  /** Buffers that are not written yet because the client does not read, or because the response head was not sent. */
  queue: Buffer[]
  queuedBytes: number
  isStarted: boolean
  /** The time at which Node's buffer for this stream became full; `null` while the client reads. */
  unreadSince: number | null
  lastWriteAt: number
}

/** Streams whose events are collected and serialised in the same way. */
interface Channel {
  readonly streams: Set<Stream>
  readonly add: (event: TransactionEvent) => void
  /** Writes the collected events to the streams. */
  readonly flush: () => void
  /** Serialises the events of a process; all events if `process` is `null`. */
  readonly buffersOf: (
    events: readonly TransactionEvent[],
    process: string | null,
  ) => readonly Buffer[]
}

interface ChannelRules {
  readonly now: () => number
  /** Returns for how long an event waits for further events before it is written. */
  readonly collectMs: (event: TransactionEvent) => number
  /** Returns the minimum time between a batch of `events` events to `streams` streams and the next batch. */
  readonly pauseMs: (events: number, streams: number) => number
  /** Returns the serialised texts of the events that the streams of this channel contain. */
  readonly textsOf: (events: readonly TransactionEvent[]) => readonly string[]
  readonly send: (stream: Stream, buffers: readonly Buffer[]) => void
}

function createChannel({ now, collectMs, pauseMs, textsOf, send }: ChannelRules): Channel {
  const streams = new Set<Stream>()
  let batch: TransactionEvent[] = []
  let timer: NodeJS.Timeout | undefined
  /** The time at which the collected events are written; Infinity if there are none. */
  let dueAt = Number.POSITIVE_INFINITY
  /** The time before which no batch is written. */
  let nextBatchAt = 0

  function buffersOf(events: readonly TransactionEvent[], process: string | null): Buffer[] {
    const texts = textsOf(
      process === null ? events : events.filter(({ Process }) => Process === process),
    )
    const buffers: Buffer[] = []
    for (let start = 0; start < texts.length; start += EVENTS_PER_BUFFER)
      buffers.push(Buffer.from(texts.slice(start, start + EVENTS_PER_BUFFER).join('')))
    return buffers
  }

  function flush(): void {
    clearTimeout(timer)
    dueAt = Number.POSITIVE_INFINITY
    const events = batch
    batch = []
    if (events.length === 0) return
    nextBatchAt = now() + pauseMs(events.length, streams.size)
    const buffers = new Map<string | null, readonly Buffer[]>()
    for (const stream of streams) {
      let ofProcess = buffers.get(stream.process)
      if (ofProcess === undefined) {
        ofProcess = buffersOf(events, stream.process)
        buffers.set(stream.process, ofProcess)
      }
      if (ofProcess.length > 0) send(stream, ofProcess)
    }
  }

  /** Does nothing if the events for which this flush was scheduled were already written. */
  function flushIfDue(): void {
    if (dueAt <= now()) flush()
  }

  return {
    streams,
    add(event) {
      if (streams.size === 0) return
      batch.push(event)
      const time = now()
      const at = Math.max(nextBatchAt, time + collectMs(event))
      if (at >= dueAt) return
      clearTimeout(timer)
      dueAt = at
      if (at > time) timer = setTimeout(flush, at - time)
      // The events are written without a timer, because the shortest timer takes a millisecond. The last event of a run is
      // urgent. Other events are written after the calls and messages that this turn of the event loop sends.
      else (isOver(event.Status) ? afterThisTurn : afterWritesOfThisTurn)(flushIfDue)
    },
    flush,
    buffersOf,
  }
}

export type EventStreams = ReturnType<typeof createEventStreams>

export function createEventStreams({ feed, now, onCut }: EventStreamsDeps) {
  const complete = createChannel({
    now,
    collectMs: ({ Status }) => (isOver(Status) ? 0 : LONGEST_BATCH_MS),
    pauseMs: (events, streams) =>
      Math.max(streams * MS_PER_WRITE, Math.min(events * MS_PER_EVENT, LONGEST_BATCH_MS)),
    textsOf: (events) => events.map(textOf),
    send,
  })
  const coalesced = createChannel({
    now,
    collectMs: () => 0,
    pauseMs: () => COALESCE_MS,
    textsOf: (events) => newestOfEachRun(events).map(serialised),
    send,
  })
  const channels = [complete, coalesced]
  const places = new Places(WATCHERS)

  /** Called for each transition, from the first stream on. */
  const onTransition = (event: TransactionEvent): void => {
    for (const channel of channels) channel.add(event)
  }
  let stopWatching: (() => void) | null = null

  function send(stream: Stream, buffers: readonly Buffer[]): void {
    const wasRead = stream.queue.length === 0
    for (const buffer of buffers) {
      stream.queue.push(buffer)
      stream.queuedBytes += buffer.length
    }
    write(stream)
    // One batch may be larger than the limit, also for a client that reads.
    if (!wasRead && stream.queuedBytes > MAX_UNREAD_BYTES) cut(stream, 'unread_bytes')
  }

  /**
   * Writes queued Buffers until Node's buffer for the stream is full. The `drain` event of the stream calls this
   * function again.
   */
  function write(stream: Stream): void {
    while (stream.isStarted && stream.unreadSince === null) {
      const next = nextBuffer(stream)
      if (next === undefined) return
      stream.lastWriteAt = now()
      if (!stream.outgoing.write(next)) stream.unreadSince = stream.lastWriteAt
    }
  }

  /**
   * Returns the next Buffer to write. Missed events come before the events that happened after the client reconnected.
   */
  function nextBuffer(stream: Stream): Buffer | undefined {
    while (stream.missed.length > 0) {
      const [slice] = stream.channel.buffersOf(
        stream.missed.slice(0, EVENTS_PER_BUFFER),
        stream.process,
      )
      stream.missed = stream.missed.slice(EVENTS_PER_BUFFER)
      if (slice !== undefined) return slice
    }
    const next = stream.queue.shift()
    stream.queuedBytes -= next?.length ?? 0
    return next
  }

  function cut(stream: Stream, reason: CutReason): void {
    if (!close(stream)) return
    onCut(reason)
    // The connection is reset, because a TCP reset discards the data that the kernel still buffers for this client.
    // This data could be megabytes.
    stream.outgoing.socket?.resetAndDestroy()
  }

  /** Writes no further events to the stream. Returns false if the stream was closed before. */
  function close(stream: Stream): boolean {
    stream.freePlace()
    return stream.channel.streams.delete(stream)
  }

  /** The connection of a client that does not read is reset. Its response would otherwise never end. */
  function end(stream: Stream): void {
    close(stream)
    if (stream.unreadSince === null) stream.outgoing.end()
    else stream.outgoing.socket?.resetAndDestroy()
  }

  /**
   * Ends the streams of a channel after their last events. A large batch fills Node's buffer of a client that reads as
   * well, so a client counts as not reading only if the buffer was full before.
   */
  function endAll(channel: Channel): void {
    const reading = [...channel.streams].filter(
      ({ isStarted, unreadSince }) => isStarted && unreadSince === null,
    )
    channel.flush()
    for (const stream of reading) {
      for (const buffer of stream.queue.splice(0)) stream.outgoing.write(buffer)
      stream.unreadSince = null
    }
    for (const stream of channel.streams) end(stream)
  }

  const check = setInterval(() => {
    for (const { streams } of channels)
      for (const stream of streams)
        if (!stream.isStillValid()) end(stream)
        else if (stream.unreadSince !== null && now() - stream.unreadSince >= MAX_UNREAD_MS)
          cut(stream, 'unread_time')
        else if (now() - stream.lastWriteAt >= KEEP_ALIVE_MS) send(stream, [STILL_HERE])
  }, CHECK_MS).unref()

  return {
    /** The number of open streams. */
    get size(): number {
      return places.size
    },
    /**
     * Opens an event stream to `outgoing`. Returns a function that starts writing; the caller calls this function when
     * the response head has been sent.
     *
     * @throws {IntegrationError} `too_many_watchers` if the caller gets no place (`WATCHERS`).
     */
    open(outgoing: StreamResponse, options: StreamOptions): () => void {
      const { caller, process, isCoalesced, lastId, isStillValid } = options
      const freePlace = places.take(caller)
      if (freePlace === null)
        throw new IntegrationError(
          'too_many_watchers',
          `${WATCHERS.total} clients read the events of this replica already, or ${WATCHERS.perKey} with this key`,
          { retryAfterSeconds: 5 },
        )
      const channel = isCoalesced ? coalesced : complete
      channel.flush() // the first batch of the new stream must contain no earlier events: they belong to `missed`
      const missed = lastId === null ? [] : feed.after(lastId)
      const stream: Stream = {
        outgoing,
        process,
        isStillValid,
        channel,
        freePlace,
        missed: [],
        queue: [],
        queuedBytes: 0,
        isStarted: false,
        unreadSince: null,
        lastWriteAt: now(),
      }
      channel.streams.add(stream)
      stopWatching ??= feed.watch(onTransition)
      if (outgoing.destroyed) close(stream)
      outgoing.on('close', () => close(stream))
      outgoing.on('error', () => {}) // `close` follows, and a broken connection is not an error of the coordinator
      outgoing.on('drain', () => {
        stream.unreadSince = null
        write(stream)
      })
      return () => {
        stream.isStarted = true
        outgoing.write(missed === null ? RESET : CONNECTED)
        stream.missed = missed ?? []
        write(stream)
      }
    },
    [Symbol.dispose](): void {
      stopWatching?.()
      clearInterval(check)
      for (const channel of channels) endAll(channel)
    },
  }
}

/** Returns the serialised text of an event, which is stored in the event. */
const textOf = (event: KeptEvent): string => (event[TEXT] ??= serialised(event))

const serialised = (event: StreamedTransition): string =>
  `event: transaction\nid: ${eventId(event)}\ndata: ${JSON.stringify(event)}\n\n`
