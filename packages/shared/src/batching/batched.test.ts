import { describe, expect, it } from 'vitest'
import { batched } from './batched.ts'

/** Groups as they were run, each answered when the test says so. */
function fixture(options: { maxSize?: number; retries?: boolean } = {}) {
  const groups: (readonly number[])[] = []
  const answers: (() => void)[] = []
  const double = batched<number, number>(async (inputs) => {
    groups.push(inputs)
    await new Promise<void>((resolve) => void answers.push(resolve))
    if (inputs.includes(13)) throw new Error('not 13')
    return inputs.map((input) => input * 2)
  }, options)
  const turn = () => new Promise((resolve) => void setImmediate(resolve))
  /** Answers what is asked until all of `work` is settled. */
  const settled = async <Result>(work: readonly Promise<Result>[]) => {
    const all = Promise.allSettled(work)
    let isDone = false
    void all.then(() => (isDone = true))
    while (!isDone) {
      answers.shift()?.()
      await turn()
    }
    return all
  }
  return { double, groups, settled, turn }
}

const valueOf = (result: PromiseSettledResult<number>) =>
  result.status === 'fulfilled' ? result.value : (result.reason as Error).message

describe('grouped calls', () => {
  it('go together when they come in one turn, and with the next group while one is on its way', async () => {
    const { double, groups, settled, turn } = fixture()
    const first = [double(1), double(2)]
    await turn()
    const later = [double(3), double(4), double(5)]
    const results = await settled([...first, ...later])
    expect(groups).toEqual([
      [1, 2],
      [3, 4, 5],
    ])
    expect(results.map(valueOf)).toEqual([2, 4, 6, 8, 10])
  })

  it('are as many as a group may hold', async () => {
    const { double, groups, settled } = fixture({ maxSize: 2 })
    await settled([1, 2, 3, 4, 5].map(double))
    expect(groups).toEqual([[1, 2], [3, 4], [5]])
  })

  it('fail alone: the others of the group are asked again, each by itself', async () => {
    const { double, groups, settled } = fixture()
    const results = await settled([1, 13, 3].map(double))
    expect(groups).toEqual([[1, 13, 3], [1], [13], [3]])
    expect(results.map(valueOf)).toEqual([2, 'not 13', 6])
  })

  it('fail together where another try would hide what happened', async () => {
    const { double, groups, settled } = fixture({ retries: false })
    const results = await settled([1, 13, 3].map(double))
    expect(groups).toEqual([[1, 13, 3]])
    expect(results.map(valueOf)).toEqual(['not 13', 'not 13', 'not 13'])
  })
})
