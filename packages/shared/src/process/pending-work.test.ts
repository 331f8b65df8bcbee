import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { createPendingWork } from './pending-work.ts'

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
