import { setImmediate as nextTurn } from 'node:timers/promises'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createPendingWork, type Link, LinkedList } from './pending-work.ts'

describe('pending work', () => {
  it('has ended when every promise has settled, whether it was fulfilled or rejected', async () => {
    const work = createPendingWork()
    const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    void work.add(first.promise)
    const failed = expect(work.add(second.promise)).rejects.toThrow('failed')
    let hasEnded = false
    const ended = work.ended().then(() => (hasEnded = true))
    first.resolve()
    await nextTurn()
    expect([work.count, hasEnded]).toEqual([1, false])
    second.reject(new Error('failed'))
    await Promise.all([ended, failed])
    expect(work.count).toBe(0)
  })

  it('includes work that is added while a caller waits', async () => {
    const work = createPendingWork()
    const order: string[] = []
    const later = (): Promise<void> => nextTurn().then(() => void order.push('later'))
    void work.add(nextTurn().then(() => void work.add(later())))
    await work.ended()
    expect(order).toEqual(['later'])
  })

  it('has ended at once if nothing was added', async () => {
    await expect(createPendingWork().ended()).resolves.toBeUndefined()
  })
})

describe('a linked list', () => {
  it('contains the added values that were not removed, in the order of addition', () => {
    const action = fc.oneof(fc.constant('add' as const), fc.nat())
    fc.assert(
      fc.property(fc.array(action, { maxLength: 40 }), (actions) => {
        const list = new LinkedList<number>()
        const links: Link<number>[] = []
        let expected: number[] = []
        for (const [n, one] of actions.entries()) {
          if (one === 'add') {
            links.push(list.add(n))
            expected.push(n)
          } else if (links.length > 0) {
            const link = links[one % links.length] as Link<number>
            expect(link.remove()).toBe(expected.includes(link.value))
            expected = expected.filter((value) => value !== link.value)
          }
        }
        expect(Array.from(list, ({ value }) => value)).toEqual(expected)
      }),
    )
  })

  it('continues an iteration that removes the values that it visits', () => {
    const list = new LinkedList<number>()
    for (const value of [1, 2, 3, 4]) list.add(value)
    const visited: number[] = []
    for (const link of list) {
      visited.push(link.value)
      if (link.value !== 3) link.remove()
    }
    expect(visited).toEqual([1, 2, 3, 4])
    expect(Array.from(list, ({ value }) => value)).toEqual([3])
  })

  it('visits values that are added during an iteration, and not those that are removed', () => {
    const list = new LinkedList<number>()
    const [, second] = [1, 2, 3].map((value) => list.add(value))
    const visited: number[] = []
    for (const { value } of list) {
      visited.push(value)
      if (value === 1) second?.remove()
      if (value === 3) list.add(4)
    }
    expect(visited).toEqual([1, 3, 4])
  })

  it('throws if a loop removes both the current link and the next one', () => {
    const list = new LinkedList<number>()
    const links = [1, 2, 3].map((value) => list.add(value))
    expect(() => {
      for (const { value } of list)
        if (value === 1) for (const link of links.slice(0, 2)) link.remove()
    }).toThrow('two adjacent links')
  })
})
