import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Backends,
  type Fixture,
  openBackends,
  requestsWait,
  startFixture,
} from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'

let backends: Backends
beforeAll(async () => {
  backends = await openBackends('real', { Sale: ['only'] })
})
afterAll(() => backends[Symbol.asyncDispose]())

async function queueAndWait(host: Fixture, id: string) {
  const response = await host.call('/processes/Sale/transactions', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Prefer: 'wait=50' },
    body: JSON.stringify({ TransactionID: id, InitialData: id, Tags: { channel: 'shop' } }),
  })
  return { status: response.status, run: (await response.json()) as Record<string, unknown> }
}

/** The timeout is shorter than the waits, so that a test fails if no event has ended the wait. */
describe(
  'a request with `Prefer: wait` to a coordinator on PostgreSQL',
  { timeout: 30_000 },
  () => {
    it.each(['message', 'inline'] as const)(
      "gets the completed run as it is stored, dispatch '%s'",
      async (dispatch) => {
        const sale = defineProcess('Sale', { dispatch, version: '2', deadlineSeconds: 60 })
        const processes = [sale.step('only', (step) => step.complete())]
        await using host = await startFixture(backends, { processes })
        const { status, run } = await queueAndWait(host, dispatch)
        expect([status, run]).toMatchObject([200, { Status: 'Completed', DefinitionVersion: '2' }])
        expect(await host.run(dispatch)).toMatchObject(run)
      },
    )

    it('gets its response when another coordinator has completed the run', async () => {
      const released = Promise.withResolvers<void>()
      const bothWait = Promise.withResolvers<void>()
      // The first coordinator runs one step at a time, and its step waits for `released`, so the second coordinator
      // completes the other run, and not before both requests wait.
      const blocked = defineProcess('Sale').step('only', async (step) => {
        await released.promise
        return step.complete('first')
      })
      const quick = defineProcess('Sale').step('only', async (step) => {
        await bothWait.promise
        return step.complete('second')
      })
      await using first = await startFixture(backends, {
        processes: [blocked],
        env: { PREFETCH: '1' },
      })
      await using second = await startFixture(backends, { processes: [quick] })
      const responses = ['1', '2'].map((id) => queueAndWait(first, id))
      await requestsWait(first, 2)
      bothWait.resolve()
      const { status, run } = await Promise.race(responses)
      expect([status, run]).toMatchObject([200, { Status: 'Completed' }])
      expect((await second.run(String(run['TransactionID']))).Items).toMatchObject([
        { Data: 'second' },
      ])
      released.resolve()
      for (const response of await Promise.all(responses))
        expect(response).toMatchObject({ status: 200, run: { Status: 'Completed' } })
    })
  },
)
