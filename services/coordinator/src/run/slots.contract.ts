import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, type MovableSource } from '../../test-support/movable-source.ts'
import { aSearch } from '../../test-support/search.ts'
import { advance, type StepOutcome } from './progress.ts'
import { defaultRetryPolicy } from './retry-policy.ts'
import type { Run, RunKey } from './run.ts'
import { type Grants, type SlotRequest, WHOLE_PROCESS } from './slots.ts'
import type {
  Claim,
  ClaimResult,
  NewTransaction,
  ProcessOutline,
  RunState,
} from './transaction-source.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'report'] }
const done: StepOutcome = { kind: 'completed', response: null, data: null, endsRun: false }
const later: StepOutcome = { kind: 'later', delayMs: 0 }
const failed: StepOutcome = { kind: 'failed', errorClass: 'no', error: 'no', response: null }
const faulted: StepOutcome = { kind: 'waiting', credential: 'ACC-1', error: 'faulted' }

/** Tests limits on the number of runs in progress; both the memory and the PostgreSQL source must pass these tests. */
export function slotsContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} with a limit on the number of runs in progress`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const one: SlotRequest = { limit: 1, key: WHOLE_PROCESS }
    const queue = async (id: string, more: Partial<NewTransaction> = {}): Promise<Run> => {
      const transaction = { TransactionID: id, InitialData: id, ...more }
      const [result] = await source.queue(process, [transaction])
      if (result?.run === undefined) throw new Error('not queued')
      return result.run
    }
    const queueAll = async (...ids: readonly string[]): Promise<Run[]> => {
      const runs: Run[] = []
      for (const id of ids) {
        runs.push(await queue(id))
        await source.advance(2) // so that each run becomes due later than the previous run
      }
      return runs
    }
    const claim = (run: RunState, slot = one, owner = 'worker'): Promise<ClaimResult> =>
      source.claim({
        Process: run.Process,
        TransactionID: run.TransactionID,
        ReplayID: run.ReplayID,
        version: run.Version,
        step: run.StepName,
        isFirst: run.StepName === 'order',
        owner,
        slot,
      })
    const claimed = async (run: RunState, slot = one): Promise<Claim> => {
      const result = await claim(run, slot)
      if (result.kind !== 'claimed') throw new Error(`not claimed: ${result.kind}`)
      return result.claim
    }
    const parked = async (run: RunState, slot = one): Promise<RunState> => {
      const result = await claim(run, slot)
      if (result.kind !== 'no_slot') throw new Error(`not parked: ${result.kind}`)
      return result.run
    }
    const record = async (
      { lease, run }: Claim,
      outcome = done,
      isInline = false,
    ): Promise<RunState> => {
      const options = { steps: process.steps, policy: defaultRetryPolicy, random: 0, isInline }
      const state = await source.record(lease, advance(run, outcome, options))
      if (state === null) throw new Error('not recorded')
      return state
    }
    const grant = (
      released: readonly RunKey[] | null,
      limit: number | null = 1,
      total?: number,
    ): Promise<Grants> =>
      source.grantSlots(
        [{ process: process.name, limit, ...(total !== undefined && { total }) }],
        released,
      )
    /** Assigns slots until no more can be assigned, and returns the ids of the runs that got one. */
    const grantedTo = async (...args: Parameters<typeof grant>): Promise<string[]> => {
      const { runs, hasMore } = await grant(...args)
      const ids = runs.map(({ TransactionID }) => TransactionID)
      return hasMore ? [...ids, ...(await grantedTo(...args))] : ids
    }
    const stateOf = async (id: string) => (await source.get(process.name, id, null))?.run

    it('a run that finds no free slot waits with WaitingFor `concurrency`, and no attempt is counted', async () => {
      const [a, b] = (await queueAll('a', 'b')) as [Run, Run]
      await claimed(a)
      const waiting = { Status: 'Waiting', WaitingFor: 'concurrency', Attempt: 0, ErrorClass: null }
      expect(await parked(b)).toMatchObject({ ...waiting, Version: b.Version + 1 })
      expect(await source.get(process.name, 'b', null)).toMatchObject({
        run: waiting,
        attempts: [],
      })
      const found = await source.search(
        aSearch(process.name, { filter: { waitingFor: ['concurrency'] } }),
      )
      expect(found.runs.map(({ TransactionID }) => TransactionID)).toEqual(['b'])
      // A second delivery of the step message of run b changes nothing.
      expect(await claim(b)).toEqual({ kind: 'stale' })
      expect((await stateOf('b'))?.Version).toBe(b.Version + 1)
    })

    it('a run that waits for a slot keeps its place when an operator retries it', async () => {
      const [a, b, c] = (await queueAll('a', 'b', 'c')) as [Run, Run, Run]
      const first = await claimed(a)
      await parked(b)
      await parked(c)
      const retried = await source.operate('retry', process, 'b', null, anAct)
      expect(retried).toMatchObject({ Status: 'Retrying', NextAttemptAt: b.NextAttemptAt })
      await parked(retried)
      await source.operate('cancel', process, 'a', null, anAct)
      expect(await grantedTo([first.lease])).toEqual(['b'])
    })

    it('a run keeps its slot from step to step, and its end releases the slot for the next run', async () => {
      const [a, b] = (await queueAll('a', 'b')) as [Run, Run]
      const second = await record(await claimed(a))
      await parked(b)
      expect(await grantedTo([second])).toEqual([])
      const ended = await record(await claimed(second))
      expect(ended.Status).toBe('Completed')
      const { runs, hasMore } = await grant([ended])
      expect(runs).toMatchObject([{ TransactionID: 'b', Status: 'Running', WaitingFor: null }])
      expect(hasMore).toBe(false)
      expect((await claimed(runs[0] as RunState)).run).toMatchObject({
        Attempt: 1,
        StepName: 'order',
      })
    })

    it('a run keeps its slot when its worker continues with the next step inline', async () => {
      const [a, b] = (await queueAll('a', 'b')) as [Run, Run]
      const claimOfA = await claimed(a)
      const next = await record(claimOfA, done, true)
      expect(next.Status).toBe('Running')
      await parked(b)
      expect(await grantedTo([a])).toEqual([])
    })

    it.each([
      ['waits for its next attempt', later, 'Retrying'],
      ['waits for a credential', faulted, 'Waiting'],
      ['fails', failed, 'Failed'],
    ])('a run that %s gives its slot back', async (_, outcome, status) => {
      const [a, b] = (await queueAll('a', 'b')) as [Run, Run]
      const claimOfA = await claimed(a)
      await parked(b)
      const released = await record(claimOfA, outcome)
      expect(released.Status).toBe(status)
      expect(await grantedTo([released])).toEqual(['b'])
    })

    it('a run that has released its slot needs a new slot to continue', async () => {
      const [a, b] = (await queueAll('a', 'b')) as [Run, Run]
      const held = await record(await claimed(a), faulted)
      const claimOfB = await claimed(b)
      // The credential of run a becomes usable while run b has the only slot.
      const [woken] = await source.wake('ACC-1', 10)
      expect(woken).toMatchObject({ TransactionID: 'a', Status: 'Running' })
      const waiting = await parked(woken as Run)
      expect(waiting.Version).toBeGreaterThan(held.Version)
      const ended = await record(await claimed(await record(claimOfB)))
      expect(await grantedTo([ended])).toEqual(['a'])
    })

    it('free slots are assigned to the runs that have been due longest, and later runs do not overtake them', async () => {
      const [a, b, c, d] = (await queueAll('a', 'b', 'c', 'd')) as [Run, Run, Run, Run]
      const claimOfA = await claimed(a)
      await parked(c)
      await parked(b)
      const ended = await record(claimOfA, failed)
      // The slot of run a is free, and the runs b and c wait for it.
      await parked(d)
      const order: string[] = []
      for (let released: RunState = ended; ;) {
        const [next] = (await grant([released])).runs
        if (next === undefined) break
        order.push(next.TransactionID)
        released = await record(await claimed(next), failed)
      }
      expect(order).toEqual(['b', 'c', 'd'])
    })

    it('a free slot is assigned to the run that has been due longest, even if other runs already wait for a slot', async () => {
      const [a, b, c] = (await queueAll('a', 'b', 'c')) as [Run, Run, Run]
      const claimOfB = await claimed(b)
      await parked(c)
      await record(claimOfB, failed)
      await claimed(a)
      expect(await grantedTo([b])).toEqual([])
    })

    it('a concurrency limit by key applies to each key separately', async () => {
      const stored: SlotRequest = { limit: 1, key: null }
      const a1 = await queue('a1', { ConcurrencyKey: 'a' })
      const a2 = await queue('a2', { ConcurrencyKey: 'a' })
      const b1 = await queue('b1', { ConcurrencyKey: 'b' })
      const claimOfA1 = await claimed(a1, stored)
      await claimed(b1, stored)
      await parked(a2, stored)
      expect(await grantedTo([b1])).toEqual([])
      expect(await grantedTo([await record(claimOfA1, failed)])).toEqual(['a2'])
      expect(await stateOf('a2')).toMatchObject({ ConcurrencyKey: 'a' })
    })

    it('a run without a stored concurrency key is claimed with a computed key, and keeps this key', async () => {
      const run = await queue('a')
      const stored: SlotRequest = { limit: 1, key: null }
      expect(await claim(run, stored)).toEqual({
        kind: 'unkeyed',
        initialData: 'a',
        version: run.Version,
      })
      const next = await record(await claimed(run, { limit: 1, key: 'k' }))
      expect(await stateOf('a')).toMatchObject({ ConcurrencyKey: 'k' })
      await claimed(next, stored)
      const other = await queue('b', { ConcurrencyKey: 'k' })
      await parked(other, stored)
    })

    it('a replay with new data has the concurrency key of that data; without new data, its first claim sets the key', async () => {
      const stored: SlotRequest = { limit: 1, key: null }
      const run = await queue('a', { ConcurrencyKey: 'k' })
      await record(await claimed(run, stored), failed)
      const replay = { fromStep: null, latest: null }
      const changed = { ...replay, initialData: 'x', concurrencyKey: 'l' }
      const second = await source.replay(process, 'a', changed, anAct)
      expect(second.ConcurrencyKey).toBe('l')
      await record(await claimed(second, stored), failed)
      const third = await source.replay(process, 'a', replay, anAct)
      expect(third.ConcurrencyKey).toBeNull()
      expect(await claim(third, stored)).toMatchObject({ kind: 'unkeyed', initialData: 'x' })
    })

    it('a cancelled run releases its slot, or never gets one if it was waiting for a slot', async () => {
      const [a, b, c] = (await queueAll('a', 'b', 'c')) as [Run, Run, Run]
      await claimed(a)
      await parked(b)
      await parked(c)
      await source.operate('cancel', process, 'b', null, anAct)
      expect(await grantedTo([b])).toEqual([])
      await source.operate('cancel', process, 'a', null, anAct)
      expect(await grantedTo([a])).toEqual(['c'])
      expect(await stateOf('b')).toMatchObject({ Status: 'Cancelled' })
      // A resumed run must wait for a slot again.
      const resumed = await source.operate('resume', process, 'a', null, anAct)
      await parked(resumed)
    })

    it('a run that waits for a slot fails at its deadline and no longer gets a slot', async () => {
      const a = await queue('a')
      await claimed(a)
      const [result] = await source.queue({ ...process, deadlineMs: 1_000 }, [
        { TransactionID: 'b', InitialData: 'b' },
      ])
      await parked(result?.run as Run)
      await parked(await queue('c'))
      await source.advance(1_000)
      expect(await source.failPastDeadline(10)).toMatchObject([
        { TransactionID: 'b', Status: 'Failed', WaitingFor: null },
      ])
      await source.operate('cancel', process, 'a', null, anAct)
      expect(await grantedTo([a])).toEqual(['c'])
    })

    it('a run whose worker was lost keeps its slot after the lease of the worker has expired', async () => {
      const [a, b] = (await queueAll('a', 'b')) as [Run, Run]
      await claimed(a)
      await parked(b)
      await source.advance(contractTimes.leaseMs)
      expect(await grantedTo(null)).toEqual([])
      const recovered = await source.recoverExpiredLeases(10)
      expect(recovered.map(({ TransactionID }) => TransactionID)).toEqual(['a'])
      expect(await grantedTo(null)).toEqual([])
      const ended = await record(await claimed(recovered[0] as Run), failed)
      expect(await grantedTo([ended])).toEqual(['b'])
    })

    it('after the lease of a lost worker has expired, the redelivered step message claims the run in the same slot', async () => {
      const [a, b] = (await queueAll('a', 'b')) as [Run, Run]
      await claimed(a)
      await parked(b)
      await source.advance(contractTimes.leaseMs)
      const result = await claim(a, one, 'another worker')
      expect(result).toMatchObject({ kind: 'claimed', claim: { run: { InDoubt: true } } })
      expect(await grantedTo(null)).toEqual([])
    })

    it('free slots are found even if it is unknown which runs released them', async () => {
      const runs = await queueAll('a', 'b', 'c', 'd')
      const [a, b, c, d] = runs as [Run, Run, Run, Run]
      const claimOfA = await claimed(a)
      for (const run of [b, c, d]) await parked(run)
      await record(claimOfA, failed)
      expect(await source.grantSlots([{ process: 'Other', limit: 1 }], null)).toMatchObject({
        runs: [],
      })
      expect(await grantedTo(null)).toEqual(['b'])
      expect(await grantedTo(null)).toEqual([])
      // With a raised limit, there are more free slots. Without a limit, there is a slot for every run.
      expect(await grantedTo(null, 2)).toEqual(['c'])
      expect(await grantedTo(null, null)).toEqual(['d'])
    })

    it('after the limit was lowered, running runs continue, and a run starts only when fewer runs than the limit are in progress', async () => {
      const two: SlotRequest = { limit: 2, key: WHOLE_PROCESS }
      const [a, b, c] = (await queueAll('a', 'b', 'c')) as [Run, Run, Run]
      const claimOfA = await claimed(a, two)
      const nextOfB = await record(await claimed(b, two))
      await parked(c)
      const claimOfB = await claimed(nextOfB)
      const endedA = await record(claimOfA, failed)
      expect(await grantedTo([endedA])).toEqual([])
      const endedB = await record(claimOfB, failed)
      expect(await grantedTo([endedB])).toEqual(['c'])
    })

    it('concurrent claims never get more slots than the limit', async () => {
      const limit = 3
      const ids = Array.from({ length: 40 }, (_, n) => `r${n}`)
      const runs = await Promise.all(ids.map((id) => queue(id)))
      const slot = { limit, key: WHOLE_PROCESS }
      const results = await Promise.all(runs.map((run) => claim(run, slot)))
      const kinds = results.map(({ kind }) => kind)
      expect(kinds.filter((kind) => kind === 'claimed')).toHaveLength(limit)
      expect(kinds.filter((kind) => kind === 'no_slot')).toHaveLength(ids.length - limit)
      const claims = results.flatMap((result) => (result.kind === 'claimed' ? [result.claim] : []))
      await Promise.all(claims.map((each) => record(each, failed)))
      const granted = await Promise.all(claims.map(({ lease }) => grantedTo([lease], limit)))
      expect(new Set(granted.flat()).size).toBe(limit)
      expect(granted.flat()).toHaveLength(limit)
    })

    it('a run that waits for a slot is not published by the sweeper and is not reported as due or stuck', async () => {
      const [a, b] = (await queueAll('a', 'b')) as [Run, Run]
      await claimed(a)
      await parked(b)
      await source.advance(contractTimes.sweepMs * 2)
      const step = { process: process.name, step: 'order', isFirst: true }
      expect(await source.due([step], 10)).toEqual([])
      const { dueBySteps, violations } = await source.audit([process.name])
      expect(dueBySteps).toEqual([])
      expect(violations).toMatchObject({ stuck: 0, itemAhead: 0 })
    })

    const ofKeys = async (...ids: readonly string[]): Promise<Run[]> => {
      const runs: Run[] = []
      for (const id of ids) {
        // The key of `a1` is `a`.
        runs.push(await queue(id, { ConcurrencyKey: id.slice(0, 1) }))
        await source.advance(2)
      }
      return runs
    }
    const shared = (total: number, limit: number): SlotRequest => ({ limit, total, key: null })

    it('a total limits the runs of all keys together, and each key has its own limit besides', async () => {
      const slot = shared(3, 2)
      const runs = await ofKeys('a1', 'a2', 'a3', 'b1', 'b2')
      const [a1, a2, a3, b1, b2] = runs as [Run, Run, Run, Run, Run]
      const claimOfA1 = await claimed(a1, slot)
      await claimed(a2, slot)
      await parked(a3, slot)
      expect(await grantedTo(null, 2, 3)).toEqual([])
      const claimOfB1 = await claimed(b1, slot)
      await parked(b2, slot)
      expect(await grantedTo(null, 2, 3)).toEqual([])
      // Both keys have one slot then, and a3 has been due longer than b2.
      expect(await grantedTo([await record(claimOfA1, failed)], 2, 3)).toEqual(['a3'])
      // The slot that b1 gives back is free for every key, but the key a has all slots that it may have.
      expect(await grantedTo([await record(claimOfB1, failed)], 2, 3)).toEqual(['b2'])
    })

    it('a free slot goes to the key that has the fewest slots, and then to the run that has been due longest', async () => {
      const slot = shared(4, 4)
      const runs = await ofKeys('a1', 'a2', 'a3', 'b1', 'a4', 'a5', 'b2', 'c1', 'd1')
      const claims: Claim[] = []
      for (const run of runs.slice(0, 4)) claims.push(await claimed(run, slot))
      for (const run of runs.slice(4)) await parked(run, slot)
      const order: string[] = []
      for (const held of claims)
        order.push(...(await grantedTo([await record(held, failed)], 4, 4)))
      // c and d have no slot. When a has one slot left, and b has one, a4 has been due longest.
      expect(order).toEqual(['c1', 'd1', 'a4', 'b2'])
    })

    it('several slots that become free at once are shared by the keys', async () => {
      const slot = shared(4, 4)
      const runs = await ofKeys('a1', 'a2', 'a3', 'a4', 'a5', 'a6', 'a7', 'b1', 'b2', 'c1')
      const claims: Claim[] = []
      for (const run of runs.slice(0, 4)) claims.push(await claimed(run, slot))
      for (const run of runs.slice(4)) await parked(run, slot)
      for (const held of claims) await record(held, failed)
      expect((await grantedTo(null, 4, 4)).toSorted()).toEqual(['a5', 'a6', 'b1', 'c1'])
    })

    it('a run that comes later does not overtake the waiting runs to which the free slots go', async () => {
      const slot = shared(2, 2)
      const [a1, b1, c1, d1, b2] = (await ofKeys('a1', 'b1', 'c1', 'd1', 'b2')) as [
        Run,
        Run,
        Run,
        Run,
        Run,
      ]
      const claimOfA = await claimed(a1, slot)
      await claimed(b1, slot)
      await parked(c1, slot)
      await record(claimOfA, failed)
      // The free slot goes to c1, which waits. The keys of d1 and b2 have as many slots or more, and both came later.
      await parked(d1, slot)
      await parked(b2, slot)
      expect(await grantedTo(null, 2, 2)).toEqual(['c1'])
    })

    it('the claim of a run whose key has no slot gets a free slot before the waiting runs of a key that has one', async () => {
      const slot = shared(3, 3)
      const [a1, a2, a3, a4, b1] = (await ofKeys('a1', 'a2', 'a3', 'a4', 'b1')) as [
        Run,
        Run,
        Run,
        Run,
        Run,
      ]
      await claimed(a1, slot)
      await claimed(a2, slot)
      const claimOfA3 = await claimed(a3, slot)
      await parked(a4, slot)
      await record(claimOfA3, failed)
      await claimed(b1, slot)
      expect(await grantedTo(null, 3, 3)).toEqual([])
    })

    it('runs with high priority get free slots first, within the limit of their key', async () => {
      const oneOfKey = shared(2, 1)
      const runs = await ofKeys('a1', 'b1', 'c1')
      const claims = [
        await claimed(runs[0] as Run, oneOfKey),
        await claimed(runs[1] as Run, oneOfKey),
      ]
      await parked(runs[2] as Run, oneOfKey)
      for (const id of ['a2', 'b2'])
        await parked(
          await queue(id, { ConcurrencyKey: id.slice(0, 1), Priority: 'high' }),
          oneOfKey,
        )
      expect(await grantedTo([await record(claims[0] as Claim, failed)], 1, 2)).toEqual(['a2'])
      const a2 = await claimed((await stateOf('a2')) as Run, oneOfKey)
      // The high run b2 waits for the slot of its own key, so the slot of a2 goes to c1.
      expect(await grantedTo([await record(a2, failed)], 1, 2)).toEqual(['c1'])
      expect(await grantedTo([await record(claims[1] as Claim, failed)], 1, 2)).toEqual(['b2'])
    })

    it('a limit without a total also gives free slots to runs with high priority first', async () => {
      const claimOfA = await claimed(await queue('a'))
      await parked(await queue('b'))
      await source.advance(2)
      await parked(await queue('c', { Priority: 'high' }))
      await record(claimOfA, failed)
      await parked(await queue('d'))
      expect(await grantedTo([claimOfA.lease])).toEqual(['c'])
    })

    it('runs that no longer wait take no slot from the waiting runs of their key or of other keys', async () => {
      const slot = shared(1, 1)
      const runs = await ofKeys('a1', 'a2', 'a3', 'b1', 'a4')
      const claimOfA1 = await claimed(runs[0] as Run, slot)
      for (const run of runs.slice(1)) await parked(run, slot)
      for (const id of ['a2', 'b1']) await source.operate('cancel', process, id, null, anAct)
      await record(claimOfA1, failed)
      expect(await grantedTo([claimOfA1.lease], 1, 1)).toEqual(['a3'])
    })

    it('concurrent claims of several keys never get more slots than the total and the limit of each key', async () => {
      const slot = shared(7, 2)
      const ids = Array.from({ length: 40 }, (_, n) => `${'abcde'[n % 5]}${n}`)
      const runs = await Promise.all(ids.map((id) => queue(id, { ConcurrencyKey: id.slice(0, 1) })))
      const results = await Promise.all(runs.map((run) => claim(run, slot)))
      const claims = results.flatMap((result) => (result.kind === 'claimed' ? [result.claim] : []))
      const perKey = Map.groupBy(claims, ({ run }) => run.TransactionID.slice(0, 1))
      expect(claims).toHaveLength(7)
      for (const ofKey of perKey.values()) expect(ofKey.length).toBeLessThanOrEqual(2)
      await Promise.all(claims.map((each) => record(each, failed)))
      const granted = await Promise.all(claims.map(({ lease }) => grantedTo([lease], 2, 7)))
      const counts = Map.groupBy(granted.flat(), (id) => id.slice(0, 1))
      expect(granted.flat()).toHaveLength(7)
      expect([...counts.values()].map(({ length }) => length).toSorted((a, b) => a - b)).toEqual([
        1, 1, 1, 2, 2,
      ])
    })

    it('runs that wait for a limit of the process get slots after the limit was replaced by one with a total', async () => {
      const [a, b, c] = (await queueAll('a', 'b', 'c')) as [Run, Run, Run]
      const claimOfA = await claimed(a)
      await parked(b)
      await parked(c)
      expect(await grantedTo(null, 2, 2)).toEqual(['b'])
      expect(await grantedTo([await record(claimOfA, failed)], 2, 2)).toEqual(['c'])
    })

    it('an erasure removes the concurrency key of the run', async () => {
      const run = await queue('a', { ConcurrencyKey: 'ada@example.com', Realm: 'r1' })
      const ended = await record(await claimed(run, { limit: 1, key: null }), failed)
      expect(await source.erase([ended], anAct)).toBe(1)
      expect(await stateOf('a')).toMatchObject({ ConcurrencyKey: null, InitialData: null })
    })
  })
}
