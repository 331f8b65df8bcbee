import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { TransactionSource } from '../run/transaction-source.ts'
import { type ChangeCursors, createChangeCursors } from './change-cursors.ts'

const HOUR_MS = 3_600_000
const ago = (ms: number): string => new Date(Date.now() - ms).toISOString()

/** Tests the cursors of change feeds; both the memory and the PostgreSQL source must pass these tests. */
export function changeCursorsContract(name: string, open: () => Promise<TransactionSource>): void {
  describe(`the cursors of change feeds in ${name}`, () => {
    let source: TransactionSource
    let cursors: ChangeCursors
    beforeEach(async () => {
      source = await open()
      cursors = createChangeCursors(source)
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const positions = async (): Promise<Record<string, string>> =>
      Object.fromEntries(
        (await cursors.oldestCursors(10)).map(({ realm, position }) => [realm, position]),
      )

    it('beginCursor() creates a cursor at the present time only if the company has no cursor', async () => {
      expect(await cursors.changeCursor('1')).toBeNull()
      const begun = await cursors.beginCursor('1')
      expect(begun).toMatchObject({ realm: '1', sweptAt: null, events: 0, incomplete: null })
      expect(Math.abs(Date.now() - Date.parse(begun.position))).toBeLessThan(60_000)
      expect(await cursors.beginCursor('1')).toMatchObject({ position: begun.position })
      expect(await cursors.changeCursor('1')).toMatchObject({ position: begun.position })
    })

    it('if ten coordinators create the cursor of a company at the same time, all get the same cursor', async () => {
      const begun = await Promise.all(Array.from({ length: 10 }, () => cursors.beginCursor('1')))
      expect(new Set(begun.map(({ position }) => position)).size).toBe(1)
    })

    it('a sweep of the change feed moves the cursor of the company and stores its result', async () => {
      await cursors.beginCursor('1')
      const position = new Date(Date.now() + HOUR_MS).toISOString()
      await cursors.moveCursor('1', { position, events: 7, incomplete: 'deletions of Invoice' })
      const moved = await cursors.changeCursor('1')
      expect(moved).toMatchObject({ position, events: 7, incomplete: 'deletions of Invoice' })
      expect(moved?.sweptAt).toEqual(expect.any(String))
      expect(moved?.lagMs).toBe(0)
    })

    it('a sweep of the change feed that ends late does not move the cursor back', async () => {
      const { position } = await cursors.beginCursor('1')
      await cursors.moveCursor('1', { position: ago(HOUR_MS), events: 1, incomplete: null })
      expect(await cursors.changeCursor('1')).toMatchObject({ position, events: 1 })
    })

    it('a sweep of the change feed does not restore a cursor that was removed during the sweep', async () => {
      await cursors.beginCursor('1')
      await cursors.removeCursor('1')
      await cursors.moveCursor('1', { position: ago(0), events: 1, incomplete: null })
      expect(await cursors.changeCursor('1')).toBeNull()
      expect(await positions()).toEqual({})
    })

    it('oldestCursors() returns the cursors with the oldest positions first, and the lag of each cursor', async () => {
      const later = (ms: number): string => new Date(Date.now() + ms).toISOString()
      const [first, second] = [later(HOUR_MS), later(2 * HOUR_MS)]
      for (const realm of ['1', '2', '3']) await cursors.beginCursor(realm)
      await cursors.moveCursor('1', { position: second, events: 0, incomplete: null })
      await cursors.moveCursor('2', { position: first, events: 0, incomplete: null })
      expect((await cursors.oldestCursors(10)).map(({ realm }) => realm)).toEqual(['3', '2', '1'])
      expect(await cursors.oldestCursors(2)).toHaveLength(2)
      const [oldest] = await cursors.oldestCursors(1)
      expect(oldest?.lagMs).toBeLessThan(60_000)
    })

    it('deliveryAgeMs() returns how long ago the provider has delivered an event', async () => {
      expect(await cursors.deliveryAgeMs()).toBeNull()
      await cursors.keepDelivery()
      await cursors.keepDelivery()
      const age = await cursors.deliveryAgeMs()
      expect(age).toBeGreaterThanOrEqual(0)
      expect(age).toBeLessThan(60_000)
    })
  })
}
