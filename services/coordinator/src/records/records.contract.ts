import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { type ScheduleRow, SCHEDULES } from '../schedule/schedule-store.ts'
import { entryOf, readActions } from '../run/action.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import type { RecordFilter, Records } from './records.ts'

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
        entryOf('pause_schedule', anAct, { Process: 'OrderProcess', TransactionID })
      await records.replace(undefined, row('a'), entry('a@1'))
      await records.replace(undefined, row('a'), entry('a@2'))
      await records.replace(await one('a'), row('a', { Reason: 'r' }), entry('a@3'))
      const actions = await readActions(source, { limit: 10 })
      expect(actions.map(({ TransactionID, KeyID }) => [TransactionID, KeyID])).toEqual([
        ['a@3', anAct.by.keyId],
        ['a@1', anAct.by.keyId],
      ])
    })

    it('rows are found by values, by one of several values, and by a range of a time', async () => {
      const at = (n: number) => `2026-11-0${n}T00:00:00.000Z`
      for (const [n, Name] of ['a', 'b', 'c', 'd', 'e'].entries())
        await records.replace(
          undefined,
          row(Name, { Reason: n < 2 ? null : Name, LastAt: at(n + 1) }),
        )
      await records.replace(undefined, row('never', { LastAt: null }))
      const names = async (where: RecordFilter<ScheduleRow>) =>
        (await records.page({ where, by: ['Name'], limit: 10 })).map(({ Name }) => Name).join('')
      expect(await names({ Process: 'OrderProcess', Name: 'c' })).toBe('c')
      expect(await names({ Reason: null, LastAt: { from: at(1) } })).toBe('ab')
      expect(await names({ Name: { in: ['d', 'b', 'none'] }, Cron: undefined })).toBe('bd')
      expect(await names({ Name: { in: [] } })).toBe('')
      expect(await names({ LastAt: { from: at(2), until: at(4) } })).toBe('bc')
      expect(await names({ LastAt: { until: at(2) } })).toBe('a')
      expect(await names({ LastAt: { from: undefined, until: undefined }, Name: 'a' })).toBe('a')
    })

    it('rows are counted in groups, with their least time', async () => {
      const rows = [
        row('a'),
        row('b', { NextAt: '2026-11-28T02:00:00.000Z' }),
        row('c', { Each: 'company' }),
      ]
      for (const added of rows) await records.replace(undefined, added)
      await records.replace(undefined, row('a', { Process: 'Order', Each: 'company' }))
      expect(await records.count({ by: ['Process', 'Each'] })).toEqual([
        { Process: 'Order', Each: 'company', Count: 1 },
        { Process: 'OrderProcess', Each: 'company', Count: 1 },
        { Process: 'OrderProcess', Each: 'once', Count: 2 },
      ])
      const where = { Process: 'OrderProcess', Each: 'once' } as const
      expect(await records.count({ where, by: ['Each'], oldest: 'NextAt' })).toEqual([
        { Each: 'once', Count: 2, Oldest: '2026-11-28T02:00:00.000Z' },
      ])
      expect(await records.count({ where: { Process: 'Other' }, by: ['Each'] })).toEqual([])
    })

    it('rows are removed with one entry of an action, all of them or the first ones', async () => {
      for (const Name of 'abcd') await records.replace(undefined, row(Name))
      await records.replace(undefined, row('a', { Process: 'Order' }))
      const entry = entryOf('pause_schedule', anAct, { Process: 'OrderProcess' })
      const where = { Process: 'OrderProcess' }
      expect(await records.remove({ where, by: ['Name'], limit: 2 })).toBe(2)
      expect((await records.rows('OrderProcess')).map(({ Name }) => Name)).toEqual(['c', 'd'])
      expect(await readActions(source, { limit: 10 })).toEqual([])
      expect(await records.remove({ where }, entry)).toBe(2)
      expect(await records.remove({ where }, entry)).toBe(0)
      expect(await records.rows()).toEqual([row('a', { Process: 'Order' })])
      expect(await readActions(source, { limit: 10 })).toMatchObject([entry])
    })

    it('an entry can be stored without a row', async () => {
      const entry = entryOf('export', anAct, { Process: 'OrderProcess' })
      await records.replace(undefined, undefined, entry)
      await records.replace(undefined, undefined)
      expect(await readActions(source, { limit: 10 })).toMatchObject([entry])
      expect(await records.rows()).toEqual([])
    })
  })
}
