import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import type { MovableSource } from '../../test-support/movable-source.ts'
import { aSearch } from '../../test-support/search.ts'
import { defineProcess } from '../step/define-process.ts'
import { outlineOf, type ProcessDefinition } from '../step/definition.ts'
import { type Schedule, scheduledId } from './schedule.ts'
import {
  createScheduleStore,
  lagMs,
  SCHEDULES,
  type ScheduleRow,
  type ScheduleStore,
} from './schedule-store.ts'
import { readActions } from '../run/action.ts'

const process = defineProcess('OrderProcess')
  .step('order', (step) => step.complete())
  .step('report', (step) => step.complete())
const schedule = (change: Partial<Schedule> = {}): Schedule => ({
  name: 'nightly',
  cron: '0 2 * * *',
  timeZone: 'UTC',
  each: 'once',
  catchUp: 'last',
  jitterSeconds: 0,
  input: { a: 1 },
  ...change,
})
const of = (...schedules: readonly Schedule[]): ReadonlyMap<string, ProcessDefinition> =>
  new Map([[process.name, { ...process, schedules }]])
const DAY_MS = 86_400_000

/** The tests of stored schedules; both the memory and the PostgreSQL source must pass them. */
export function schedulesContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a store of schedules`, () => {
    let source: MovableSource
    let store: ScheduleStore
    beforeEach(async () => {
      source = await open()
      store = createScheduleStore(source)
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const find = async (wanted: string): Promise<ScheduleRow & { readonly lag: number }> => {
      const { now, rows } = await store.schedules()
      const found = rows.find(({ Name }) => Name === wanted)
      if (found === undefined) throw new Error(`no schedule ${wanted}`)
      return { ...found, lag: lagMs(found, now) }
    }
    const queuedIds = async (): Promise<string[]> => {
      const { runs } = await source.search(aSearch(process.name))
      return runs.map(({ TransactionID }) => TransactionID).toSorted()
    }

    it('a new schedule is due at its next scheduled time instead of at once', async () => {
      await store.declareSchedules(process.name, [schedule()])
      const { NextAt, lag, LastAt } = await find('nightly')
      expect(NextAt).toMatch(/T02:00:00.000Z$/)
      expect(Date.parse(NextAt) - Date.now()).toBeGreaterThan(-60_000)
      expect({ lag, LastAt }).toEqual({ lag: 0, LastAt: null })
      const { runs, fired, nextInMs } = await store.fireSchedules(of(schedule()), 10)
      expect({ runs, fired }).toEqual({ runs: [], fired: [] })
      expect(nextInMs).toBeGreaterThan(0)
      expect(nextInMs).toBeLessThanOrEqual(DAY_MS)
    })

    it('a schedule that is due queues one run whose id contains the scheduled time, and moves to its next time', async () => {
      await store.declareSchedules(process.name, [schedule()])
      await source.advance(DAY_MS)
      const { lag } = await find('nightly')
      expect(lag).toBeGreaterThan(0)
      const { runs, fired } = await store.fireSchedules(of(schedule()), 10)
      const { LastAt, NextAt } = await find('nightly')
      expect(runs).toMatchObject([
        {
          TransactionID: `nightly@${LastAt?.replace('.000Z', 'Z')}`,
          Status: 'Queued',
          StepName: 'order',
          InitialData: { a: 1 },
        },
      ])
      expect(fired).toEqual([
        { process: process.name, name: 'nightly', at: Date.parse(LastAt ?? '') },
      ])
      expect(Date.parse(NextAt) - Date.parse(LastAt ?? '')).toBe(DAY_MS)
      expect((await store.fireSchedules(of(schedule()), 10)).runs).toEqual([])
    })

    it('twenty simultaneous checks queue one run for each scheduled time', async () => {
      const every = schedule({ cron: '* * * * *', catchUp: 'all' })
      await store.declareSchedules(process.name, [every])
      await source.advance(30 * 60_000)
      const results = await Promise.all(
        Array.from({ length: 20 }, () => store.fireSchedules(of(every), 10)),
      )
      const ids = results.flatMap(({ runs }) => runs.map(({ TransactionID }) => TransactionID))
      expect(ids.length).toBeGreaterThanOrEqual(29)
      expect(ids.length).toBeLessThanOrEqual(32)
      expect(new Set(ids).size).toBe(ids.length)
      expect(await queuedIds()).toEqual(ids.toSorted())
    })

    it('declaring a schedule again without a change does not write its row', async () => {
      await store.declareSchedules(process.name, [schedule()])
      const records = source.records(SCHEDULES)
      const [before] = await records.rows()
      if (before === undefined) throw new Error('no schedule')
      await store.declareSchedules(process.name, [schedule()])
      expect(await records.replace(before, { ...before, Reason: 'unchanged' })).toBe(true)
    })

    it('a pause between the queueing of the runs and the next time of the schedule keeps both', async () => {
      await store.declareSchedules(process.name, [schedule()])
      await source.advance(DAY_MS)
      const pausing = createScheduleStore({
        records: (kind) => source.records(kind),
        async queue(...given) {
          await store.setSchedulePaused(process.name, 'nightly', true, anAct)
          return source.queue(...given)
        },
      })
      const { runs, fired } = await pausing.fireSchedules(of(schedule()), 10)
      expect([runs.length, fired.length]).toEqual([1, 1])
      const { LastAt, PausedAt } = await find('nightly')
      expect([LastAt, PausedAt]).toEqual([expect.any(String), expect.any(String)])
      expect((await store.fireSchedules(of(schedule()), 10)).runs).toEqual([])
    })

    it('if a schedule cannot be fired, the runs of earlier schedules are still returned', async () => {
      const two = [schedule({ name: 'first' }), schedule({ name: 'second', cron: '1 2 * * *' })]
      await store.declareSchedules(process.name, two)
      await source.advance(DAY_MS)
      const failing = createScheduleStore({
        records: (kind) => source.records(kind),
        async queue(outline, transactions) {
          if (transactions[0]?.TransactionID.startsWith('second') === true) throw new Error('lost')
          return source.queue(outline, transactions)
        },
      })
      const { fired, nextInMs } = await failing.fireSchedules(of(...two), 10)
      expect([fired.map((one) => one.name), nextInMs]).toEqual([['first'], 0])
      await expect(failing.fireSchedules(of(...two), 10)).rejects.toThrow('lost')
      expect((await store.fireSchedules(of(...two), 10)).runs).toHaveLength(1)
    })

    it('a scheduled time whose run already exists starts no second run', async () => {
      await store.declareSchedules(process.name, [schedule()])
      await source.advance(DAY_MS)
      const TransactionID = scheduledId('nightly', Date.parse((await find('nightly')).NextAt), null)
      await source.queue(outlineOf(process), [{ TransactionID, InitialData: 'by hand' }])
      const { runs, fired } = await store.fireSchedules(of(schedule()), 10)
      expect(runs).toEqual([])
      expect(fired).toHaveLength(1)
      expect(await queuedIds()).toEqual([TransactionID])
    })

    it('after an outage of three hours, an hourly schedule starts runs for the missed times that catchUp selects', async () => {
      const each = (catchUp: Schedule['catchUp']) =>
        schedule({ name: catchUp, cron: '0 * * * *', catchUp })
      const all = [each('last'), each('all'), each('none')]
      await store.declareSchedules(process.name, all)
      await source.advance(3 * 3_600_000)
      // With catchUp none, a run starts only if the last scheduled time was less than a minute ago.
      const isOnTime = Date.now() % 3_600_000 < 60_000
      const { runs } = await store.fireSchedules(of(...all), 10)
      const count = (prefix: string): number =>
        runs.filter(({ TransactionID }) => TransactionID.startsWith(`${prefix}@`)).length
      expect(count('last')).toBe(1)
      expect(count('all')).toBe(3)
      expect(count('none')).toBe(isOnTime ? 1 : 0)
      expect((await store.fireSchedules(of(...all), 10)).runs).toEqual([])
    })

    it('a coordinator does not fire a schedule that its own definition of the process does not contain', async () => {
      await store.declareSchedules(process.name, [schedule()])
      await source.advance(DAY_MS)
      expect((await store.fireSchedules(of(schedule({ name: 'other' })), 10)).fired).toEqual([])
      expect((await store.fireSchedules(new Map(), 10)).fired).toEqual([])
    })

    it('a removed schedule stays visible and is not fired; when it is declared again, it fires at its next time', async () => {
      await store.declareSchedules(process.name, [schedule()])
      await source.advance(DAY_MS)
      await store.declareSchedules(process.name, [])
      expect((await find('nightly')).RemovedAt).not.toBeNull()
      expect((await store.fireSchedules(of(schedule()), 10)).fired).toEqual([])
      await store.declareSchedules(process.name, [schedule()])
      expect(await find('nightly')).toMatchObject({ RemovedAt: null, lag: 0 })
      expect((await store.fireSchedules(of(schedule()), 10)).fired).toEqual([])
    })

    it('a schedule that is declared again keeps its pause, and keeps its next time unless its cron expression has changed', async () => {
      await store.declareSchedules(process.name, [schedule()])
      await store.setSchedulePaused(process.name, 'nightly', true, anAct)
      await source.advance(DAY_MS)
      const before = await find('nightly')
      await store.declareSchedules(process.name, [schedule({ catchUp: 'none' })])
      expect(await find('nightly')).toMatchObject({
        NextAt: before.NextAt,
        PausedAt: before.PausedAt,
        CatchUp: 'none',
      })
      await store.declareSchedules(process.name, [schedule({ cron: '30 3 * * *' })])
      const { NextAt, PausedAt } = await find('nightly')
      expect(NextAt).toMatch(/T03:30:00.000Z$/)
      expect(Date.parse(NextAt)).toBeGreaterThan(Date.now() - 60_000)
      expect(PausedAt).toBe(before.PausedAt)
    })

    it('a schedule that is declared again gets an earlier next time if an older release has overlooked it, but no time fires twice', async () => {
      await store.declareSchedules(process.name, [schedule()])
      await source.advance(-3 * DAY_MS) // the stored next time is then three days later
      const before = Date.parse((await find('nightly')).NextAt)
      await store.declareSchedules(process.name, [schedule()])
      const next = Date.parse((await find('nightly')).NextAt)
      expect(next).toBeLessThanOrEqual(before - 2 * DAY_MS)
      await source.advance(DAY_MS)
      expect((await store.fireSchedules(of(schedule()), 10)).fired).toHaveLength(1)
      const fired = await find('nightly')
      // The clock of the store goes back beyond the time that has fired.
      await source.advance(-DAY_MS)
      await store.declareSchedules(process.name, [schedule()])
      expect((await store.fireSchedules(of(schedule()), 10)).fired).toEqual([])
      expect((await find('nightly')).LastAt).toBe(fired.LastAt)
    })

    it('a paused schedule is not fired, and continues with its next time after it is resumed', async () => {
      const act = { ...anAct, reason: 'maintenance' }
      await store.declareSchedules(process.name, [schedule()])
      const paused = await store.setSchedulePaused(process.name, 'nightly', true, act)
      expect(paused).toMatchObject({ PausedBy: 'ops', Reason: 'maintenance' })
      await source.advance(2 * DAY_MS)
      expect((await store.fireSchedules(of(schedule()), 10)).fired).toEqual([])
      expect((await find('nightly')).lag).toBe(0)
      const resumed = await store.setSchedulePaused(process.name, 'nightly', false, act)
      expect(resumed).toMatchObject({ PausedAt: null, PausedBy: null, Reason: null })
      expect((await store.fireSchedules(of(schedule()), 10)).fired).toEqual([])
      const entries = await readActions(source, { process: process.name, limit: 10 })
      expect(entries).toMatchObject([
        { Action: 'resume_schedule', TransactionID: 'nightly@', Reason: 'maintenance' },
        { Action: 'pause_schedule', TransactionID: 'nightly@', KeyID: 'ops', Outcome: 'done' },
      ])
    })

    it('a schedule that does not exist can be neither paused nor started by an operator', async () => {
      expect(await store.setSchedulePaused(process.name, 'none', true, anAct)).toBeNull()
      expect(await store.openTick(process.name, 'none', anAct)).toBeNull()
    })

    it('the runs of companies are queued page by page, and only once if two coordinators queue the same page', async () => {
      const monthly = schedule({ each: 'company' })
      await store.declareSchedules(process.name, [monthly])
      await source.advance(DAY_MS)
      expect((await store.fireSchedules(of(monthly), 10)).runs).toEqual([])
      const [tick] = await store.openTicks(of(monthly))
      if (tick === undefined) throw new Error('no open tick')
      const { row } = tick
      expect(row).toMatchObject({ Process: process.name, Name: 'nightly', TickCursor: null })
      // While the runs of one scheduled time are being queued, the schedule is not fired for another time.
      expect((await store.fireSchedules(of(monthly), 10)).fired).toEqual([])
      expect(await store.openTick(process.name, 'nightly', anAct)).toBeNull()
      const first = await Promise.all([
        store.queueTick(tick, ['1', '2'], 'ACC-2'),
        store.queueTick(tick, ['1', '2'], 'ACC-2'),
      ])
      expect(first.filter((runs) => runs === null)).toHaveLength(1)
      expect(first.flatMap((runs) => runs ?? [])).toHaveLength(2)
      const [moved] = await store.openTicks(of(monthly))
      expect(moved?.row).toMatchObject({ TickAt: row.TickAt, TickCursor: 'ACC-2' })
      const last = await store.queueTick(moved ?? tick, ['3'], null)
      expect(last).toMatchObject([{ Realm: '3' }])
      expect(await store.openTicks(of(monthly))).toEqual([])
      const at = Date.parse(row.TickAt ?? '')
      expect(await queuedIds()).toEqual(
        ['1', '2', '3'].map((realm) => scheduledId('nightly', at, realm)),
      )
    })

    it('a start by an operator does not change the next time of the schedule, and is recorded in the action log', async () => {
      const monthly = schedule({ each: 'company' })
      await store.declareSchedules(process.name, [monthly])
      const { NextAt } = await find('nightly')
      const tick = await store.openTick(process.name, 'nightly', anAct)
      expect((await store.openTicks(of(monthly))).map(({ row }) => row)).toEqual([tick])
      expect((await find('nightly')).NextAt).toBe(NextAt)
      expect(await readActions(source, { process: process.name, limit: 10 })).toMatchObject([
        {
          Action: 'run_schedule',
          TransactionID: scheduledId('nightly', Date.parse(tick?.TickAt ?? ''), null),
        },
      ])
    })
  })
}
