import { expect, it } from 'vitest'
import { reused } from './reused.ts'

it('a result is shared until its time is over, counted from its end, and a failure is not', async () => {
  let now = 0
  const reads: PromiseWithResolvers<number>[] = []
  const read = reused(
    10,
    () => {
      const next = Promise.withResolvers<number>()
      reads.push(next)
      return next.promise
    },
    () => now,
  )
  const both = [read(), read()]
  now = 50
  reads[0]?.resolve(1)
  expect(await Promise.all([...both, read()])).toEqual([1, 1, 1])
  now = 60
  const second = read()
  reads[1]?.reject(new Error('not now'))
  await expect(second).rejects.toThrow('not now')
  const third = read()
  reads[2]?.resolve(3)
  expect([await third, reads.length]).toEqual([3, 3])
})
