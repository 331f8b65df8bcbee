import { describe, expect, it } from 'vitest'
import { batched } from './batching.ts'

/**
 * Returns a `batched` function that doubles numbers and records each batch. A batch stays in flight until `settled`
 * resolves it.
 */
function fixture(options: { maxSize?: number; retries?: boolean } = {}) {
  const batches: (readonly number[])[] = []
  const resolvers: (() => void)[] = []
  const double = batched<number, number>(async (inputs) => {
    batches.push(inputs)
    await new Promise<void>((resolve) => void resolvers.push(resolve))
    if (inputs.includes(13)) throw new Error('not 13')
    return inputs.map((input) => input * 2)
  }, options)
  const turn = () => new Promise((resolve) => void setImmediate(resolve))
  /** Resolves the batches in flight one by one until every promise in `work` is settled. */
  const settled = async <Result>(work: readonly Promise<Result>[]) => {
    const all = Promise.allSettled(work)
    let isDone = false
    void all.then(() => (isDone = true))
    while (!isDone) {
      resolvers.shift()?.()
      await turn()
    }
    return all
  }
  return { double, batches, settled, turn }
}

const valueOf = (result: PromiseSettledResult<number>) =>
  result.status === 'fulfilled' ? result.value : (result.reason as Error).message

describe('the function returned by batched()', () => {
  it('batched() combines calls of one event loop turn into a batch, and calls made during this batch into the next batch', async () => {
    const { double, batches, settled, turn } = fixture()
    const first = [double(1), double(2)]
    await turn()
    const later = [double(3), double(4), double(5)]
    const results = await settled([...first, ...later])
    expect(batches).toEqual([
      [1, 2],
      [3, 4, 5],
    ])
    expect(results.map(valueOf)).toEqual([2, 4, 6, 8, 10])
  })

  it('batched() splits calls into batches of at most the maximum size', async () => {
    const { double, batches, settled } = fixture({ maxSize: 2 })
    await settled([1, 2, 3, 4, 5].map(double))
    expect(batches).toEqual([[1, 2], [3, 4], [5]])
  })

  it('batched() repeats the calls of a failed batch one by one, so that only the calls with bad input fail', async () => {
    const { double, batches, settled } = fixture()
    const results = await settled([1, 13, 3].map(double))
    expect(batches).toEqual([[1, 13, 3], [1], [13], [3]])
    expect(results.map(valueOf)).toEqual([2, 'not 13', 6])
  })

  it('batched() fails all calls of a failed batch if retries are disabled', async () => {
    const { double, batches, settled } = fixture({ retries: false })
    const results = await settled([1, 13, 3].map(double))
    expect(batches).toEqual([[1, 13, 3]])
    expect(results.map(valueOf)).toEqual(['not 13', 'not 13', 'not 13'])
  })
})
