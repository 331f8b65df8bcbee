import { EventEmitter } from 'node:events'
import { afterThisTurn } from '@integration-host/shared/batching'
import type { TransactionEvent } from '@integration-host/shared/contracts/events'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { transactionEvent } from '../../test-support/transaction-event.ts'
import { createTransitionFeed, eventId } from './transaction-events.ts'
import {
  COALESCE_MS,
  createEventStreams,
  type CutReason,
  type EventStreams,
  WATCHERS,
  type StreamOptions,
} from './event-stream-routes.ts'

const event = (n: number, Process = 'Orders', StepName = 'order'): TransactionEvent =>
  transactionEvent({
    Process,
    TransactionID: String(n),
    StepName,
    At: new Date(Date.UTC(2026, 10, 20) + n).toISOString(),
  })
/** The last event of a run. */
const ended = (n: number): TransactionEvent => ({ ...event(n), Status: 'Completed' })
/** An event of about 300 KB. Four of them exceed the limit for unread bytes. */
const large = (n: number) => event(n, 'Orders', 'x'.repeat(300_000))

/** The two kinds of event streams. */
const kinds = [
  ['a complete', false],
  ['a coalesced', true],
] as const

const forAll: StreamOptions = {
  caller: { shareOf: null },
  process: null,
  isCoalesced: false,
  lastId: null,
  isStillValid: () => true,
}

/** A fake response that records what the coordinator writes to it. Its client reads only while `isRead` is true. */
class FakeResponse extends EventEmitter {
  readonly written: Buffer[] = []
  readonly socket = { resetAndDestroy: () => (this.close(), this.socket) as never }
  destroyed = false
  isEnded = false
  isRead = true
  write(chunk: Buffer): boolean {
    this.written.push(chunk)
    return this.isRead
  }
  end(): never {
    this.isEnded = true
    return this as never
  }
  close(): void {
    this.destroyed = true
    this.emit('close')
  }
  read(): void {
    this.isRead = true
    this.emit('drain')
  }
  get text(): string {
    return Buffer.concat(this.written).toString()
  }
  get ids(): string[] {
    return [...this.text.matchAll(/^id: \w+\/(\d+)\//gm)].map(([, id]) => id ?? '')
  }
}

describe('the event streams of /events', () => {
  const feed = createTransitionFeed()
  let streams: EventStreams
  let cuts: CutReason[]

  beforeEach(() => {
    vi.useFakeTimers()
    cuts = []
    streams = createEventStreams({
      feed,
      now: () => performance.now(),
      onCut: (reason) => cuts.push(reason),
    })
  })
  afterEach(() => {
    vi.runOnlyPendingTimers() // otherwise a scheduled write of this test would be the first one of the next test
    streams[Symbol.dispose]()
    vi.useRealTimers()
  })

  function open(options: Partial<StreamOptions> = {}): FakeResponse {
    const response = new FakeResponse()
    streams.open(response as never, { ...forAll, ...options })()
    return response
  }
  /** Adds events, and moves the time forward until the events are written. */
  function publish(...events: readonly TransactionEvent[]): void {
    for (const one of events) feed.add(one)
    vi.advanceTimersByTime(WATCHERS.total)
  }

  it('all events of a burst are written to every stream in one shared Buffer', () => {
    const [first, second] = [open(), open()]
    publish(event(1), event(2), event(3))
    expect(first.text).toBe(`: connected\n\n${[1, 2, 3].map(blockOf).join('')}`)
    expect(first.written).toHaveLength(2)
    expect(second.written[1]).toBe(first.written[1])
  })

  it('an event is serialised only once, even if many clients receive it and a client reconnects', () => {
    const stringify = vi.spyOn(JSON, 'stringify')
    const [one, two] = [event(11), event(12)]
    for (const options of [{}, {}, { process: 'Orders' }]) open(options)
    publish(one, two)
    open({ lastId: eventId(one) })
    expect(stringify.mock.calls.filter(([value]) => value === one || value === two)).toHaveLength(2)
    stringify.mockRestore()
  })

  it('events are collected for 20 ms, and the last event of a run is written at once, with those before it', () => {
    const response = open()
    feed.add(event(1))
    vi.advanceTimersByTime(19)
    expect(response.ids).toEqual([])
    vi.advanceTimersByTime(1)
    expect(response.ids).toEqual(['1'])
    for (const [n, Status] of (['Completed', 'Failed', 'Cancelled'] as const).entries()) {
      vi.advanceTimersByTime(100)
      feed.add(event(10 + n))
      feed.add({ ...event(20 + n), Status })
      vi.advanceTimersByTime(0)
      expect(response.ids.slice(-2)).toEqual([`${10 + n}`, `${20 + n}`])
    }
    expect(response.written).toHaveLength(5)
  })

  it('the last event of a run is written before the messages and calls of the same turn, and other events after them', () => {
    const order: string[] = []
    const coalesced = open({ isCoalesced: true })
    const orderOf = (one: TransactionEvent): string[] => {
      order.length = 0
      vi.spyOn(coalesced, 'write').mockImplementation(() => order.push('event') > 0)
      feed.add(one)
      afterThisTurn(() => order.push('call'))
      vi.advanceTimersByTime(2 * COALESCE_MS)
      return order
    }
    expect(orderOf(event(1))).toEqual(['call', 'event'])
    expect(orderOf(ended(2))).toEqual(['event', 'call'])
  })

  it('if 40 streams are open, the last event of a run is written only 40 ms after the previous batch', () => {
    const [response] = Array.from({ length: 40 }, () => open()) as [FakeResponse]
    publish(event(1))
    feed.add(ended(2))
    vi.advanceTimersByTime(0)
    feed.add(ended(3))
    vi.advanceTimersByTime(39)
    expect(response.ids).toEqual(['1', '2'])
    vi.advanceTimersByTime(1)
    expect(response.ids).toEqual(['1', '2', '3'])
  })

  it('after a batch of many events the last event of a run is collected for 20 ms, and after a single event only for 2 ms', () => {
    const response = open()
    publish(event(1))
    feed.add(ended(2))
    vi.advanceTimersByTime(0)
    feed.add(ended(3))
    vi.advanceTimersByTime(2)
    expect(response.ids).toEqual(['1', '2', '3'])
    vi.advanceTimersByTime(1_000)
    for (let n = 4; n <= 23; n += 1) feed.add(ended(n))
    vi.advanceTimersByTime(0)
    expect(response.ids).toHaveLength(23)
    feed.add(ended(24))
    vi.advanceTimersByTime(19)
    expect(response.ids).toHaveLength(23)
    vi.advanceTimersByTime(1)
    expect(response.ids).toHaveLength(24)
  })

  it('an event stream for one process receives only the events of that process', () => {
    const [all, orders, invoices] = [
      open(),
      open({ process: 'Orders' }),
      open({ process: 'Invoices' }),
    ]
    publish(event(1), event(2, 'Invoices'))
    publish(event(3))
    expect([all.ids, orders.ids, invoices.ids]).toEqual([['1', '2', '3'], ['1', '3'], ['2']])
    expect(invoices.written).toHaveLength(2) // a batch without events of this process causes no write
  })

  it('a coalesced stream of one process receives the newest events of that process, with the first event for which each stands', () => {
    const response = open({ isCoalesced: true, process: 'Orders' })
    publish(event(1))
    publish(event(2), event(2, 'Invoices'), { ...event(2), Version: 2 })
    vi.advanceTimersByTime(COALESCE_MS)
    expect(response.text.match(/^id: .*/gm)).toEqual(['id: Orders/1/0/1', 'id: Orders/2/0/2'])
    expect(response.text).toContain(`"First":{"Version":1,"At":"${event(2).At}"}`)
  })

  it('on shutdown a client that reads receives its last events, even if their number fills the buffer of its stream', () => {
    const response = open({ isCoalesced: true })
    publish(event(1))
    for (let n = 2; n <= 1_200; n += 1) feed.add(event(n))
    // Like Node, the response reports that its buffer is full from the first large Buffer on.
    response.isRead = false
    streams[Symbol.dispose]()
    expect(response.ids).toHaveLength(1_200)
    expect([response.isEnded, response.destroyed]).toEqual([true, false])
  })

  it('a client that reads is not disconnected if one batch exceeds 1 MB, but if further events follow before it reads', () => {
    const response = open({ isCoalesced: true })
    publish(event(1))
    response.isRead = false
    for (let n = 2; n <= 2_001; n += 1) feed.add({ ...event(n), StepName: 'x'.repeat(1_000) })
    vi.advanceTimersByTime(COALESCE_MS)
    expect([response.ids.length, response.destroyed]).toEqual([501, false])
    feed.add(event(3_000))
    vi.advanceTimersByTime(COALESCE_MS)
    expect([response.destroyed, cuts]).toEqual([true, ['unread_bytes']])
  })

  it('a coalesced stream receives the newest event of each run once a second, and the first event after a pause at once', () => {
    const [coalesced, complete] = [open({ isCoalesced: true }), open()]
    publish(event(1))
    expect(coalesced.ids).toEqual(['1'])
    for (const Version of [2, 3, 4]) publish({ ...event(2), Version })
    publish(event(3))
    expect(coalesced.ids).toEqual(['1'])
    vi.advanceTimersByTime(COALESCE_MS)
    expect(coalesced.ids).toEqual(['1', '2', '3'])
    expect(coalesced.text).toContain('id: Orders/2/0/4\n')
    expect(complete.ids).toEqual(['1', '2', '2', '2', '3'])
  })

  it('coalesced and complete streams together are limited to 100', () => {
    for (let n = 0; n < WATCHERS.total; n += 1) open({ isCoalesced: n % 2 === 0 })
    expect(() => open({ isCoalesced: true })).toThrow('100 clients')
    expect(streams.size).toBe(WATCHERS.total)
  })

  it('events for a client that does not read are kept, and are sent in order when the client reads again', () => {
    const response = open()
    response.isRead = false
    publish(event(1))
    publish(event(2))
    publish(event(3))
    expect(response.ids).toEqual(['1'])
    response.read()
    expect(response.ids).toEqual(['1', '2', '3'])
    expect(cuts).toEqual([])
  })

  it('only a client with more than 1 MB of unread events is disconnected', () => {
    const [slow, reading] = [open(), open()]
    slow.isRead = false
    for (let n = 1; n <= 4; n += 1) publish(large(n))
    expect(slow.destroyed).toBe(false)
    publish(large(5))
    expect([slow.destroyed, cuts, streams.size]).toEqual([true, ['unread_bytes'], 1])
    expect(reading.ids).toEqual(['1', '2', '3', '4', '5'])
  })

  it.each(kinds)(
    'a client of %s stream that has read nothing for 5 s is disconnected; a client that reads within 5 s stays connected',
    (_kind, isCoalesced) => {
      const [stalled, slow] = [open({ isCoalesced }), open({ isCoalesced })]
      stalled.isRead = slow.isRead = false
      publish(event(1))
      vi.advanceTimersByTime(4_000)
      slow.read()
      expect(cuts).toEqual([])
      vi.advanceTimersByTime(2_000)
      expect([stalled.destroyed, slow.destroyed, cuts]).toEqual([true, false, ['unread_time']])
    },
  )

  it('a client that reconnects after it was disconnected receives the events since its Last-Event-ID', () => {
    const first = open()
    publish(event(5_000))
    first.isRead = false
    publish(event(7_001))
    vi.advanceTimersByTime(6_000)
    expect(first.destroyed).toBe(true)
    publish(event(7_002))
    const second = open({ lastId: eventId(event(5_000)) })
    publish(event(7_003))
    expect(second.ids).toEqual(['7001', '7002', '7003'])
  })

  it('a client that reconnects receives missed events of any size in batches while it reads, and then the newer events', () => {
    const start = 100_000
    const missed = Array.from({ length: 1_200 }, (_, n) =>
      event(start + n * 10, 'Orders', 'x'.repeat(2_000)),
    )
    for (const one of missed) feed.add(one)
    const response = new FakeResponse()
    response.isRead = false
    streams.open(response as never, {
      ...forAll,
      lastId: eventId(missed[0] as TransactionEvent),
    })()
    publish(event(200_000))
    expect(response.ids.length).toBeLessThan(600)
    response.read()
    expect(response.ids).toEqual(
      [...missed.slice(1), event(200_000)].map((one) => one.TransactionID),
    )
    expect(cuts).toEqual([])
  })

  it('a client receives the event `reset` if the events since its Last-Event-ID are unknown', () => {
    expect(open({ lastId: 'Orders/unknown/0/1' }).text).toBe('event: reset\ndata: {}\n\n')
  })

  it('a stream that is opened while a batch of events waits to be sent receives no event twice', () => {
    open()
    publish(event(300_000))
    feed.add(event(300_001))
    const late = open({ lastId: eventId(event(300_000)) })
    vi.advanceTimersByTime(100)
    expect(late.ids).toEqual(['300001'])
  })

  it('a client of a coalesced stream that reconnects receives the newest missed event of each run', () => {
    publish(event(400_000))
    for (const Version of [1, 2, 3]) publish({ ...event(400_001), Version })
    const late = open({ isCoalesced: true, lastId: eventId(event(400_000)) })
    expect(late.text.match(/^id: .*/gm)).toEqual(['id: Orders/400001/0/3'])
  })

  it('a further event stream is rejected while 100 are open, and accepted after one client has disconnected', () => {
    const responses = Array.from({ length: WATCHERS.total }, () => open())
    expect(() => open()).toThrow(
      expect.objectContaining({ code: 'too_many_watchers', retryAfterSeconds: 5 }),
    )
    responses[0]?.close()
    expect(streams.size).toBe(WATCHERS.total - 1)
    open()
  })

  it('an event stream whose client disconnects before the response begins does not count against the maximum', () => {
    const response = new FakeResponse()
    response.destroyed = true
    streams.open(response as never, forAll)
    expect(streams.size).toBe(0)
  })

  it.each(kinds)(
    '%s event stream that was idle for 15 s receives an SSE comment',
    (_kind, isCoalesced) => {
      const response = open({ isCoalesced })
      vi.advanceTimersByTime(14_000)
      expect(response.text).toBe(': connected\n\n')
      vi.advanceTimersByTime(2_000)
      expect(response.text).toBe(': connected\n\n: still here\n\n')
    },
  )

  it.each(kinds)(
    '%s event stream ends within a second after its key became invalid, and other event streams continue',
    (_kind, isCoalesced) => {
      let isValid = true
      const own = { isCoalesced, isStillValid: () => isValid }
      const [reading, stalled, other] = [open(own), open(own), open({ isCoalesced })]
      stalled.isRead = false
      publish(event(1))
      vi.advanceTimersByTime(1_000)
      expect(streams.size).toBe(3)
      isValid = false
      vi.advanceTimersByTime(1_000)
      publish(event(2))
      expect([reading.ids, reading.isEnded, reading.destroyed]).toEqual([['1'], true, false])
      expect([stalled.isEnded, stalled.destroyed]).toEqual([false, true])
      expect([other.ids, other.isEnded]).toEqual([['1', '2'], false])
      expect([streams.size, cuts]).toEqual([1, []])
    },
  )

  it.each(kinds)(
    'on shutdown %s event stream ends after its last events, and the connection of a client that does not read is reset',
    (_kind, isCoalesced) => {
      const [reading, stalled] = [open({ isCoalesced }), open({ isCoalesced })]
      stalled.isRead = false
      publish(event(1))
      feed.add(event(2))
      streams[Symbol.dispose]()
      expect([reading.ids, reading.isEnded]).toEqual([['1', '2'], true])
      expect([stalled.isEnded, stalled.destroyed, cuts]).toEqual([false, true, []])
    },
  )
})

const blockOf = (n: number): string =>
  `event: transaction\nid: Orders/${n}/0/1\ndata: ${JSON.stringify(event(n))}\n\n`
