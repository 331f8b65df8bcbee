import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { MARGIN_MS, type MovableSource } from '../../test-support/movable-source.ts'
import type { CallRequest, CallReservation, TargetLimits } from './target-calls.ts'

const erp = { Process: 'P', Target: 'erp' }

/** Tests targets with limits; both the memory and the PostgreSQL source must pass these tests. */
export function targetCallsContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a counter of calls to limited targets`, () => {
    let source: MovableSource
    let slots = 0
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    /** Reserves a call to a target. The target has the given `limits`, or none. */
    const reserve = (
      limits: Partial<TargetLimits>,
      change: Partial<CallRequest> = {},
    ): Promise<CallReservation> =>
      source.reserveCall({
        ...erp,
        limits: { intervalMs: 0, concurrent: null, ...limits },
        slot: `slot-${(slots += 1)}`,
        maxWaitMs: 0,
        holdMs: 60_000,
        ...change,
      })
    const waitOf = (reservation: CallReservation): number => {
      if (reservation.kind === 'full') throw new Error('the target is full')
      return reservation.waitMs
    }

    it('concurrent reservations of calls to a target get start times that are one interval apart', async () => {
      const limits = { intervalMs: 60_000 }
      const reserved = await Promise.all(
        Array.from({ length: 20 }, () => reserve(limits, { maxWaitMs: 3_600_000 })),
      )
      expect(new Set(reserved.map(({ kind }) => kind))).toEqual(new Set(['reserved']))
      const minutes = reserved.map((one) => Math.ceil(waitOf(one) / 60_000))
      expect(minutes.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, n) => n))
    })

    it('a call that would have to wait too long for its target reserves nothing', async () => {
      const limits = { intervalMs: 60_000 }
      expect(await reserve(limits)).toEqual({ kind: 'reserved', waitMs: 0 })
      for (let n = 0; n < 2; n += 1) {
        const later = await reserve(limits, { maxWaitMs: 1_000 })
        expect(later.kind).toBe('later')
        expect(waitOf(later)).toBeGreaterThan(50_000)
        expect(waitOf(later)).toBeLessThanOrEqual(60_000)
      }
    })

    it('the time until the next call to a target depends on the limit of the caller, because replicas may have different limits', async () => {
      const wait = { maxWaitMs: 3_600_000 }
      await reserve({ intervalMs: 60_000 }, wait)
      const second = waitOf(await reserve({ intervalMs: 600_000 }, wait))
      const third = waitOf(await reserve({ intervalMs: 60_000 }, wait))
      expect(Math.ceil(second / 60_000)).toBe(1)
      expect(Math.ceil(third / 60_000)).toBe(11)
    })

    it('no more slots are reserved than the target has, however many calls are requested at the same time', async () => {
      const reserved = await Promise.all(
        Array.from({ length: 20 }, () => reserve({ concurrent: 3 })),
      )
      expect(reserved.filter(({ kind }) => kind === 'reserved')).toHaveLength(3)
      expect(reserved.filter(({ kind }) => kind === 'full')).toHaveLength(17)
    })

    it('a released slot of a target is free again, and releasing an unknown slot has no effect', async () => {
      const limits = { concurrent: 2 }
      for (const slot of ['a', 'b']) await reserve(limits, { slot })
      expect(await reserve(limits)).toEqual({ kind: 'full' })
      await source.releaseCalls(erp, ['b', 'unknown'])
      await source.releaseCalls({ Process: 'P', Target: 'unknown' }, ['a'])
      expect((await reserve(limits)).kind).toBe('reserved')
      expect(await reserve(limits)).toEqual({ kind: 'full' })
    })

    it('the slot of a call becomes free when it expires, for example because its worker was lost', async () => {
      const limits = { concurrent: 1 }
      expect((await reserve(limits, { holdMs: 60_000 })).kind).toBe('reserved')
      await source.advance(60_000 - MARGIN_MS)
      expect(await reserve(limits)).toEqual({ kind: 'full' })
      await source.advance(MARGIN_MS)
      expect((await reserve(limits)).kind).toBe('reserved')
    })

    it('the lifetime of a slot counts from the reserved time of its call, not from the time of the reservation', async () => {
      const wait = { maxWaitMs: 3_600_000 }
      const limits = { intervalMs: 60_000, concurrent: 2 }
      await reserve(limits, { holdMs: 1 })
      await reserve(limits, { ...wait, holdMs: 1 })
      await source.advance(60_000 - MARGIN_MS)
      // The slot of the first call has expired, and the second call was not sent yet.
      expect(await reserve({ concurrent: 1 }, wait)).toEqual({ kind: 'full' })
      await source.advance(MARGIN_MS + 1)
      expect((await reserve({ concurrent: 1 }, wait)).kind).toBe('reserved')
    })

    it('a call that gets no slot of its target does not delay the next call by the interval between calls', async () => {
      const limits = { intervalMs: 60_000, concurrent: 1 }
      const wait = { maxWaitMs: 3_600_000 }
      await reserve(limits, { ...wait, slot: 'a' })
      for (let n = 0; n < 5; n += 1) expect(await reserve(limits, wait)).toEqual({ kind: 'full' })
      await source.releaseCalls(erp, ['a'])
      expect(waitOf(await reserve(limits, wait))).toBeLessThanOrEqual(60_000)
    })

    it('a caller with a smaller limit also counts the calls of callers with a larger limit for the same target', async () => {
      for (let n = 0; n < 3; n += 1)
        expect((await reserve({ concurrent: 5 })).kind).toBe('reserved')
      expect(await reserve({ concurrent: 3 })).toEqual({ kind: 'full' })
      expect((await reserve({ concurrent: 4 })).kind).toBe('reserved')
    })

    it('each target has its own limits, even if another process has a target with the same name', async () => {
      const limits = { intervalMs: 60_000, concurrent: 1 }
      for (const target of [erp, { Process: 'P', Target: 'crm' }, { Process: 'Q', Target: 'erp' }])
        expect(await reserve(limits, target)).toEqual({ kind: 'reserved', waitMs: 0 })
    })

    it('a cool-down of a target delays the next call, and a shorter cool-down does not end a longer one', async () => {
      await source.coolDownTarget(erp, 60_000)
      await source.coolDownTarget(erp, 1)
      for (const limits of [{ intervalMs: 10 }, { concurrent: 1 }]) {
        const later = await reserve(limits)
        expect(later.kind).toBe('later')
        expect(waitOf(later)).toBeGreaterThan(50_000)
      }
    })
  })
}
