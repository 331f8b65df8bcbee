import { describe, expect, it } from 'vitest'
import { systemClock } from './clock.ts'

describe('the clock of the machine', () => {
  it('repeat() calls its task immediately, and again after the time that the task returns', async () => {
    const third = Promise.withResolvers<void>()
    let calls = 0
    const repetition = systemClock.repeat(async () => {
      calls += 1
      if (calls === 3) third.resolve()
      return 1
    })
    expect(calls).toBe(1)
    await third.promise
    await repetition[Symbol.asyncDispose]()
  })

  it('after soon() was called, repeat() calls its task again as soon as the call in flight has ended', async () => {
    const second = Promise.withResolvers<void>()
    let calls = 0
    await using repetition = systemClock.repeat(async () => {
      calls += 1
      if (calls === 2) second.resolve()
      return 3_600_000
    })
    repetition.soon()
    await second.promise
    expect(calls).toBe(2)
  })

  it('disposing a repeated task waits for the call in flight, and prevents further calls', async () => {
    const events: string[] = []
    const repetition = systemClock.repeat(async () => {
      events.push('start')
      await new Promise((done) => setImmediate(done))
      events.push('end')
      return 0
    })
    await repetition[Symbol.asyncDispose]()
    await new Promise((done) => setTimeout(done, 5))
    expect(events).toEqual(['start', 'end'])
  })

  it('a timer does not call its callback after it was disposed of', async () => {
    let isCalled = false
    systemClock.setTimeout(() => (isCalled = true), 0)[Symbol.dispose]()
    await new Promise((done) => setTimeout(done, 5))
    expect(isCalled).toBe(false)
  })
})
