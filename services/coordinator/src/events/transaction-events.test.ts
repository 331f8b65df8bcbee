import type { TransactionEvent } from '@integration-host/shared/contracts/events'
import { describe, expect, it } from 'vitest'
import { transactionEvent } from '../../test-support/transaction-event.ts'
import { createTransitionFeed, eventId } from './transaction-events.ts'

const event = (TransactionID: string, atMs: number): TransactionEvent =>
  transactionEvent({
    TransactionID,
    At: new Date(Date.UTC(2026, 10, 20) + atMs).toISOString(),
  })

describe('a client of /events that reconnects to another coordinator replica', () => {
  const here = event('here', 5_010)
  const elsewhere = event('elsewhere', 5_000)
  const longBefore = event('long before', 1_000)
  const after = event('after', 9_000)

  it('after a reconnect, /events repeats the events of the last second before the Last-Event-ID of the client', () => {
    const feed = createTransitionFeed()
    for (const one of [longBefore, here, elsewhere, after]) feed.add(one)
    expect(feed.after(eventId(elsewhere))).toEqual([here, after])
  })

  it('the transition feed returns null for an unknown Last-Event-ID, so that the client gets a reset', () => {
    const feed = createTransitionFeed(2)
    for (const one of [longBefore, elsewhere, here, after]) feed.add(one)
    expect(feed.after(eventId(longBefore))).toBeNull()
    expect(feed.after('Orders/never/0/1')).toBeNull()
  })
})
