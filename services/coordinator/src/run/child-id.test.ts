import { describe, expect, it } from 'vitest'
import { childId, childPrefix, commonPrefix, itemIdOf } from './child-id.ts'

const parent = (TransactionID: string, ReplayID = 0) =>
  childPrefix({ Process: 'Order', TransactionID, ReplayID }, 'lines')

describe('the ids of children', () => {
  it('an id names the parent, its place and the item', () => {
    expect(childId(parent('66'), '1')).toBe('66/Order.lines/1')
    expect(childId(parent('66', 2), '1')).toBe('66~2/Order.lines/1')
  })

  it('a longer id keeps 40 characters of the parent and the whole id of the item, and has at most 128', () => {
    const long = 'p'.repeat(128)
    const id = childId(parent(long), 'i'.repeat(64))
    expect(id).toMatch(/^p{40}~[0-9a-f]{20}\/i{64}$/)
    expect(childId(parent(`${'p'.repeat(127)}q`), 'i'.repeat(64))).not.toBe(id)
    expect(childId(parent(long, 1), 'i'.repeat(64))).not.toBe(id)
  })

  it('the ids of all children of a place begin in the same way, also if only some are shortened', () => {
    expect(commonPrefix(parent('66', 1))).toBe('66~1/Order.lines/')
    for (const length of [1, 51, 52, 100, 128])
      for (const item of ['1', 'i'.repeat(64)]) {
        const prefix = parent('p'.repeat(length))
        expect(childId(prefix, item).startsWith(commonPrefix(prefix))).toBe(true)
      }
  })

  it('the id of the item is read back from short and long ids', () => {
    for (const prefix of [
      parent('66'),
      parent('p'.repeat(128)),
      parent(`${'p'.repeat(39)}😀x`.padEnd(128, 'y')),
    ])
      for (const item of ['1', 'a/b', 'i'.repeat(64)])
        expect(itemIdOf(prefix, childId(prefix, item))).toBe(item)
  })
})
