import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { UsageStore } from './usage.ts'

/** The contract tests of every usage store. `open` returns an empty store. */
export function describeUsageStore(
  name: string,
  open: () => Promise<{ readonly store: UsageStore } & AsyncDisposable>,
): void {
  describe(`the usage store in ${name}`, () => {
    let opened: Awaited<ReturnType<typeof open>>
    beforeEach(async () => {
      opened = await open()
    })
    afterEach(() => opened[Symbol.asyncDispose]())

    it('the usage store sums the calls of each company and kind, and of all companies', async () => {
      const { store } = opened
      await store.add('2026-11', [
        { realm: '1', calls: { core: 2, query: 1 } },
        { realm: '2', calls: { query: 5 } },
      ])
      await store.add('2026-11', [{ realm: '1', calls: { query: 3, cdc: 1 } }])
      expect(await store.find('2026-11', '1')).toEqual({ core: 2, query: 4, cdc: 1 })
      expect(await store.total('2026-11')).toEqual({ core: 2, query: 9, cdc: 1 })
    })

    it('the usage store counts each month separately', async () => {
      const { store } = opened
      await store.add('2026-11', [{ realm: '1', calls: { read: 1 } }])
      expect(await store.total('2026-12')).toEqual({})
      expect(await store.find('2026-12', '1')).toEqual({})
      expect(await store.list('2026-12', { after: '', limit: 10 })).toEqual([])
    })

    it('the usage store lists companies page by page, in the order of their realms', async () => {
      const { store } = opened
      const realms = Array.from({ length: 1_201 }, (_, n) => `r${String(n).padStart(5, '0')}`)
      await store.add(
        '2026-11',
        realms.toReversed().map((realm) => ({ realm, calls: { read: 1 } })),
      )
      const first = await store.list('2026-11', { after: '', limit: 700 })
      const second = await store.list('2026-11', { after: 'r00699', limit: 700 })
      expect([...first, ...second].map(({ realm }) => realm)).toEqual(realms)
      expect(second.at(-1)).toEqual({ realm: 'r01200', calls: { read: 1 } })
      expect(await store.total('2026-11')).toEqual({ read: 1_201 })
    })
  })
}
