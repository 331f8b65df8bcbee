import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Backends, openBackends, startFixture } from '../../test-support/fixture.ts'
import { defineProcess } from '../process/define-process.ts'

let backends: Backends
beforeAll(async () => {
  backends = await openBackends('real', { Sale: ['only'] })
})
afterAll(() => backends[Symbol.asyncDispose]())

it('a request that waits for the end of a run gets its response when another coordinator has completed the run', async () => {
  const released = Promise.withResolvers<void>()
  // The first coordinator runs one step at a time, and does not complete it before the test allows this. So the second
  // coordinator completes the other run.
  const held = defineProcess('Sale').step('only', async (step) => {
    await released.promise
    return step.complete('first')
  })
  const quick = defineProcess('Sale').step('only', (step) => step.complete('second'))
  await using first = await startFixture(backends, { processes: [held], env: { PREFETCH: '1' } })
  await using second = await startFixture(backends, { processes: [quick] })
  const queue = async (id: string) => {
    const response = await first.call('/processes/Sale/transactions', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Prefer: 'wait=50' },
      body: JSON.stringify({ TransactionID: id, InitialData: id }),
    })
    return { status: response.status, run: await response.json() }
  }
  const responses = ['1', '2'].map(queue)
  const earliest = await Promise.race(responses)
  expect(earliest).toMatchObject({ status: 200, run: { Status: 'Completed' } })
  const { TransactionID } = earliest.run as { TransactionID: string }
  expect((await second.run(TransactionID)).Items).toMatchObject([{ Data: 'second' }])
  released.resolve()
  for (const { status, run } of await Promise.all(responses))
    expect([status, run]).toMatchObject([200, { Status: 'Completed' }])
})
