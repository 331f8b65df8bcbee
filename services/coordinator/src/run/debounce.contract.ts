import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { MARGIN_MS, type MovableSource } from '../../test-support/movable-source.ts'
import { runKey, type Run } from './run.ts'
import type {
  ClaimResult,
  NewTransaction,
  ProcessOutline,
  QueueResult,
} from './transaction-source.ts'
import { readActions } from './action.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'report'] }
const HOUR_MS = 3_600_000
const debounce = { Key: 'invoice 7', Seconds: 3_600, MaxSeconds: 7_200 }
const SOON_MS = 60_000
const soon = { Key: 'invoice 7', Seconds: 60, MaxSeconds: 120 }

/** Tests debounced transactions; both the memory and the PostgreSQL source must pass these tests. */
export function debounceContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source of debounced runs`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const transaction = (id: string, more: Partial<NewTransaction> = {}): NewTransaction => ({
      TransactionID: id,
      InitialData: { of: id },
      Debounce: debounce,
      ...more,
    })
    const queue = async (
      id: string,
      more: Partial<NewTransaction> = {},
      outline = process,
    ): Promise<QueueResult> => {
      const [result] = await source.queue(outline, [transaction(id, more)])
      if (result?.run === undefined) throw new Error('no result')
      return result
    }
    const stored = async (id: string): Promise<Run | undefined> =>
      (await source.get(process.name, id, null))?.run
    const claim = (run: Run): Promise<ClaimResult> => {
      const { Version: version, StepName: step } = run
      return source.claim({ ...runKey(run), version, step, isFirst: true, owner: 'worker' })
    }
    const msBetween = (from: string | null, to: string | null): number =>
      Date.parse(to ?? '') - Date.parse(from ?? '')

    it('a run has every member that its request brings, whether it is debounced or not, and so has its replay', async () => {
      // The type requires a value for each member, so that a new one is tested too.
      type Brought = Omit<
        NewTransaction,
        'TransactionID' | 'InitialData' | 'Debounce' | 'NotBefore' | 'Reason' | 'initialDataFor'
      >
      const brought: Required<Brought> = {
        Realm: 'r1',
        Tags: { region: 'north' },
        Priority: 'high',
        ConcurrencyKey: 'key',
      }
      for (const [id, more] of [
        ['plain', {}],
        ['debounced', { Debounce: debounce }],
      ] as const) {
        await source.queue(process, [{ TransactionID: id, InitialData: 1, ...brought, ...more }])
        expect(await stored(id)).toMatchObject(brought)
        await source.operate('cancel', process, id, null, anAct)
        const concurrencyKey = 'key'
        const request = { fromStep: null, latest: null, concurrencyKey }
        expect(await source.replay(process, id, request, anAct)).toMatchObject(brought)
      }
    })

    it('a later request with the same debounce key replaces the data of the waiting run and moves its start', async () => {
      const first = await queue('a')
      expect(first).toMatchObject({
        outcome: 'queued',
        run: { DebounceKey: 'invoice 7', Absorbed: 0, InitialData: { of: 'a' } },
      })
      await source.advance(20)
      const second = await queue('b', { ConcurrencyKey: 'of b' })
      expect(second).toMatchObject({
        outcome: 'absorbed',
        run: {
          TransactionID: 'a',
          Version: 0,
          Absorbed: 1,
          InitialData: { of: 'b' },
          ConcurrencyKey: 'of b',
        },
      })
      const { run } = second
      expect(run.NextAttemptAt).toBe(run.NotBefore)
      expect(msBetween(first.run.NotBefore, run.NotBefore)).toBeGreaterThanOrEqual(15)
      expect(msBetween(run.UpdatedAt, run.NotBefore)).toBe(HOUR_MS)
      expect(await stored('a')).toEqual(run)
      expect(await stored('b')).toBeUndefined()
      // The step message of the first request stays valid. Its delivery is too early for the new start time, so the
      // message is delayed further.
      expect((await claim(first.run)).kind).toBe('early')
    })

    it('a repeated debounced request is reported as existing, whether its run waits, has started or has ended', async () => {
      const repeated = async () => {
        for (const id of ['a', 'b', 'c']) {
          const again = await queue(id)
          expect([again.outcome, again.run.TransactionID]).toEqual(['exists', 'a'])
        }
      }
      await queue('a', { Debounce: soon })
      await queue('b', { Debounce: soon })
      const { run } = await queue('c', { Debounce: soon })
      await repeated()
      expect(await stored('a')).toEqual(run)
      await source.advance(SOON_MS - MARGIN_MS)
      expect((await claim(run)).kind).toBe('early')
      await source.advance(MARGIN_MS)
      const claimed = await claim(run)
      expect(claimed).toMatchObject({ claim: { run: { InitialData: { of: 'c' } } } })
      await repeated()
      await source.operate('cancel', process, 'a', null, anAct)
      await repeated()
    })

    it('a debounced request after the start of the run queues a new run that waits', async () => {
      const first = await queue('a')
      const started = await source.operate('retry', process, 'a', null, anAct)
      expect((await claim(started)).kind).toBe('claimed')
      expect(await queue('b')).toMatchObject({ outcome: 'queued', run: { TransactionID: 'b' } })
      expect(await queue('c')).toMatchObject({ outcome: 'absorbed', run: { TransactionID: 'b' } })
      expect((await stored('a'))?.InitialData).toEqual(first.run.InitialData)
    })

    it.each(['cancel', 'retry'] as const)(
      'a run that an operator has changed by %s absorbs no further request',
      async (action) => {
        await queue('a')
        await source.operate(action, process, 'a', null, anAct)
        expect(await queue('b')).toMatchObject({ outcome: 'queued', run: { TransactionID: 'b' } })
        expect(await queue('b')).toMatchObject({ outcome: 'exists' })
      },
    )

    it('a debounced run starts at most MaxSeconds after the first request, and its start never moves to an earlier time', async () => {
      const { run: first } = await queue('a', { Debounce: { ...debounce, MaxSeconds: 3_600 } })
      await source.advance(20)
      const { run } = await queue('b', { Debounce: { ...debounce, MaxSeconds: 9_000 } })
      expect(run.NotBefore).toBe(first.NotBefore)
      const { run: earlier } = await queue('c', { Debounce: { ...debounce, Seconds: 1 } })
      expect(earlier).toMatchObject({ NotBefore: first.NotBefore, InitialData: { of: 'c' } })
    })

    it('a debounced request later than MaxSeconds after the first one queues a new run', async () => {
      const { run } = await queue('a', { Debounce: { ...soon, MaxSeconds: soon.Seconds } })
      await source.advance(SOON_MS)
      expect((await queue('b')).outcome).toBe('queued')
      expect((await claim(run)).kind).toBe('claimed')
    })

    it('the deadline of a debounced run moves with its start', async () => {
      const outline = { ...process, deadlineMs: HOUR_MS }
      await queue('a', {}, outline)
      await source.advance(20)
      const { run } = await queue('b', {}, outline)
      expect(msBetween(run.NotBefore, run.DeadlineAt)).toBe(HOUR_MS)
    })

    it('requests of another company, process or debounce key are not absorbed', async () => {
      await queue('a', { Realm: '1' })
      const others = [
        await queue('b', { Realm: '2' }),
        await queue('c'),
        await queue('d', { Realm: '1', Debounce: { ...debounce, Key: 'invoice 8' } }),
        await queue('e', { Realm: '1' }, { ...process, name: 'Other' }),
      ]
      expect(others.map(({ outcome }) => outcome)).toEqual(Array(4).fill('queued'))
      expect((await queue('f', { Realm: '1' })).run.TransactionID).toBe('a')
      expect((await queue('f', { Realm: '2' })).outcome).toBe('conflict')
    })

    it('one call can contain debounced transactions, which are absorbed in order, and other transactions, which are queued', async () => {
      const more = { Debounce: { ...debounce, Key: 'invoice 8' } }
      const results = await source.queue(process, [
        transaction('a'),
        transaction('x', more),
        { TransactionID: 'plain', InitialData: 1 },
        transaction('b'),
        transaction('y', more),
        transaction('b'),
        transaction('c'),
        { TransactionID: 'plain', InitialData: 2 },
      ])
      expect(results.map(({ outcome, run }) => [outcome, run?.TransactionID])).toEqual([
        ['queued', 'a'],
        ['queued', 'x'],
        ['queued', 'plain'],
        ['absorbed', 'a'],
        ['absorbed', 'x'],
        ['exists', 'a'],
        ['absorbed', 'a'],
        ['conflict', 'plain'],
      ])
      expect(await stored('a')).toMatchObject({ Absorbed: 2, InitialData: { of: 'c' } })
      expect(await stored('x')).toMatchObject({ Absorbed: 1, InitialData: { of: 'y' } })
      for (const id of ['b', 'c', 'y']) expect((await queue(id)).outcome).toBe('exists')
    })

    it('absorbed transactions are recorded in the action log as entries of the run that absorbed them', async () => {
      const by = { keyId: 'key', person: 'Ada' }
      await source.queue(process, [transaction('a', { Reason: 'first' })], by)
      await source.queue(process, [transaction('b', { Reason: 'second' })], by)
      const actions = await readActions(source, { process: process.name, limit: 10 })
      expect(
        actions.map(({ TransactionID, Outcome, Reason }) => [TransactionID, Outcome, Reason]),
      ).toEqual([
        ['a', 'absorbed', 'second'],
        ['a', 'done', 'first'],
      ])
    })

    it('an erased run shows no debounce key and keeps the ids that it has absorbed', async () => {
      await queue('a')
      await queue('b')
      const cancelled = await source.operate('cancel', process, 'a', null, anAct)
      await source.erase(
        [{ ...runKey(cancelled), Version: cancelled.Version, filesLeft: false }],
        anAct,
      )
      expect(await stored('a')).toMatchObject({ DebounceKey: null, InitialData: null })
      expect((await queue('b')).outcome).toBe('exists')
    })
  })
}
