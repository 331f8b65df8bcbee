import type { TransactionEvent } from '@integration-host/shared/contracts/events'
import { expect, it } from 'vitest'
import { transactionEvent } from '../../test-support/transaction-event.ts'
import { newestOfEachRun } from './newest-of-each-run.ts'

const at = (second: number): string => `2026-11-27T10:00:0${second}.000Z`
const event = (
  TransactionID: string,
  Version: number,
  second: number,
  ReplayID = 0,
): TransactionEvent => transactionEvent({ TransactionID, Version, At: at(second), ReplayID })

it('the newest event of a run replaces its earlier ones, and describes the first of them', () => {
  const events = [event('a', 0, 1), event('b', 3, 2), event('a', 1, 3), event('a', 2, 4)]
  expect(newestOfEachRun(events)).toEqual([
    event('b', 3, 2),
    { ...event('a', 2, 4), First: { Version: 0, At: at(1) } },
  ])
})

it('the version decides which event is the newest, even if the events arrived in a different order', () => {
  expect(newestOfEachRun([event('a', 2, 3), event('a', 1, 2), event('a', 0, 1)])).toEqual([
    { ...event('a', 2, 3), First: { Version: 0, At: at(1) } },
  ])
})

it('each failure of a run is kept, and the event after it stands for the later events only', () => {
  const failed = (Version: number, second: number): TransactionEvent => ({
    ...event('a', Version, second),
    Status: 'Failed',
  })
  const events = [event('a', 0, 1), failed(3, 2), event('a', 4, 3), event('a', 5, 4), failed(6, 5)]
  expect(newestOfEachRun(events)).toEqual([
    { ...failed(3, 2), First: { Version: 0, At: at(1) } },
    { ...failed(6, 5), First: { Version: 4, At: at(3) } },
  ])
})

it('a failure that arrives after a newer event of its run is left out', () => {
  const outdated: TransactionEvent = { ...event('a', 3, 1), Status: 'Failed' }
  expect(newestOfEachRun([event('a', 4, 2), outdated])).toEqual([
    { ...event('a', 4, 2), First: { Version: 3, At: at(1) } },
  ])
})

it('of two events with the same version the later one is kept, at its own place', () => {
  const inDoubt = { ...event('a', 3, 1), InDoubt: true, Status: 'Failed' as const }
  const settled = { ...inDoubt, InDoubt: false, At: at(3) }
  expect(newestOfEachRun([inDoubt, event('b', 1, 2), settled])).toEqual([event('b', 1, 2), settled])
})

it('an event that stands only for itself is not changed, and repetitions of it are left out', () => {
  const one = event('a', 1, 1)
  expect(newestOfEachRun([one, { ...one }])).toEqual([one])
  expect(newestOfEachRun([one])[0]).toBe(one)
  expect(newestOfEachRun([])).toEqual([])
})

it('replays of a transaction, and equal ids of two processes, are different runs', () => {
  const events = [event('a', 1, 1), event('a', 1, 1, 1), { ...event('a', 1, 1), Process: 'Other' }]
  expect(newestOfEachRun(events)).toEqual(events)
})
