import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { type ScheduleRow, SCHEDULES } from '../schedule/schedule-store.ts'
import { entryOf } from '../run/action.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import type { Records } from './records.ts'

const row = (Name: string, change: Partial<ScheduleRow> = {}): ScheduleRow => ({
  Process: 'OrderProcess',
  Name,
  Cron: '0 2 * * *',
  TimeZone: 'UTC',
  Each: 'once',
  CatchUp: 'last',
  JitterSeconds: 0,
  NextAt: '2026-11-29T02:00:00.000Z',
  LastAt: null,
  TickAt: null,
  TickCursor: null,
  PausedAt: null,
  PausedBy: null,
  Reason: null,
  RemovedAt: null,
  UpdatedAt: '2026-11-28T12:00:00.000Z',
  ...change,
})

/** The tests of `Records`, on the table of schedules; both the memory and the PostgreSQL source must pass them. */
export function recordsContract(name: string, open: () => Promise<TransactionSource>): void {
  describe(`${name} as a store of records`, () => {
    let source: TransactionSource
    let records: Records<ScheduleRow>
    beforeEach(async () => {
      source = await open()
      records = source.records(SCHEDULES)
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const one = async (Name: string): Promise<ScheduleRow> => {
      const [found] = await records.rows('OrderProcess', Name)
      if (found === undefined) throw new Error(`no row ${Name}`)
      return found
    }

    it('a row is read as it was stored, and rows come in the order of their keys', async () => {
      for (const Name of ['b', 'a']) await records.replace(undefined, row(Name))
      await records.replace(undefined, row('c', { Process: 'Order' }))
      expect(await records.rows()).toEqual([row('c', { Process: 'Order' }), row('a'), row('b')])
      expect(await records.rows('OrderProcess')).toEqual([row('a'), row('b')])
      expect(await records.rows('OrderProcess', 'b')).toEqual([row('b')])
      expect(await records.rows('OrderProcess', 'none')).toEqual([])
    })

    it('a row is stored if there is none, and replaced only if it is unchanged since it was read', async () => {
      expect(await records.replace(undefined, row('a'))).toBe(true)
      expect(await records.replace(undefined, row('a', { Reason: 'second' }))).toBe(false)
      const [first, second] = [await one('a'), await one('a')]
      expect(await records.replace(first, row('a', { Reason: 'first' }))).toBe(true)
      expect(await records.replace(second, row('a', { Reason: 'second' }))).toBe(false)
      expect(await one('a')).toEqual(row('a', { Reason: 'first' }))
    })

    it('of many replacements of the same row, exactly one succeeds', async () => {
      await records.replace(undefined, row('a'))
      const before = await Promise.all(Array.from({ length: 20 }, () => one('a')))
      const replaced = await Promise.all(
        before.map((known, n) => records.replace(known, row('a', { JitterSeconds: n }))),
      )
      expect(replaced.filter(Boolean)).toHaveLength(1)
      expect((await one('a')).JitterSeconds).toBe(replaced.indexOf(true))
    })

    it('the entry of an action is stored if and only if the row is replaced', async () => {
      const entry = (TransactionID: string) =>
        entryOf('pause_schedule', anAct, { Process: 'OrderProcess', TransactionID }, { now: 0 })
      await records.replace(undefined, row('a'), entry('a@1'))
      await records.replace(undefined, row('a'), entry('a@2'))
      await records.replace(await one('a'), row('a', { Reason: 'r' }), entry('a@3'))
      const actions = await source.actions({ limit: 10 })
      expect(actions.map(({ TransactionID, KeyID }) => [TransactionID, KeyID])).toEqual([
        ['a@3', anAct.by.keyId],
        ['a@1', anAct.by.keyId],
      ])
    })
  })
}
