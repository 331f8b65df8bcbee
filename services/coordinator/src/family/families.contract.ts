import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  type Backends,
  type Fixture,
  type FixtureOptions,
  openBackends,
  startFixture,
} from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'

/** One line of an order. `fails` decides how its run ends. */
const line = defineProcess('Line', {
  input: z.object({ no: z.number(), fails: z.boolean() }),
}).step('post', (step) =>
  step.initialData.fails ? step.fail('no') : step.complete(step.initialData.no * 10),
)

const Order = z.object({ lines: z.array(z.object({ no: z.number(), fails: z.boolean() })) })
const order = defineProcess('Order', { input: Order })
  .step('read', (step) => step.complete(step.initialData.lines))
  .forEach('lines', line, {
    items: (step) => step.previous.data.map((one) => ({ id: one.no, data: one })),
  })
  .step('sum', async (step) => {
    const data: (number | null)[] = []
    for await (const child of step.children('lines')) data.push(child.data)
    return step.complete({ result: step.previous.data, data })
  })

const lines = (count: number, fails: readonly number[] = []) =>
  Array.from({ length: count }, (_, n) => ({ no: n + 1, fails: fails.includes(n + 1) }))

/** Tests of runs with children, from the API to the end of the parent. All backends must pass these tests. */
export function familiesContract(kind: 'embedded' | 'real'): void {
  describe(`children on ${kind} backends`, () => {
    let backends: Backends
    const opened: AsyncDisposable[] = []
    beforeEach(async () => {
      backends = await openBackends(kind, {
        Order: ['read', 'lines', 'sum'],
        Line: ['post'],
      })
    })
    afterEach(async () => {
      for (const resource of opened.splice(0).toReversed()) await resource[Symbol.asyncDispose]()
      await backends[Symbol.asyncDispose]()
    })
    const start = async (options: FixtureOptions = {}): Promise<Fixture> => {
      const host = await startFixture(backends, { processes: [order, line], ...options })
      opened.push(host)
      return host
    }
    const post = (host: Fixture, path: string, body: object = {}) =>
      host.call(path, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
      })
    const queue = async (host: Fixture, id: string, InitialData: unknown, process = 'Order') => {
      const response = await post(host, `/processes/${process}/transactions`, {
        TransactionID: id,
        InitialData,
        Realm: '42',
      })
      expect(response.status).toBe(202)
    }
    const read = async (host: Fixture, id: string, process = 'Order') =>
      (await (
        await host.call(`/processes/${process}/transactions/${encodeURIComponent(id)}`)
      ).json()) as {
        Status: string
        ErrorClass: string | null
        WaitingFor: string | null
        Realm: string
        Items: { StepName: string; Status: string; Data: unknown }[]
        Parent?: object
      }
    const reached = async (host: Fixture, id: string, status: string, process = 'Order') => {
      await eventually(async () => expect((await read(host, id, process)).Status).toBe(status))
      return read(host, id, process)
    }
    const itemOf = (run: Awaited<ReturnType<typeof read>>, step: string) =>
      run.Items.find(({ StepName }) => StepName === step)

    it('a run starts one child for each item, waits for all of them, and reads their data', async () => {
      const host = await start()
      await queue(host, '66', { lines: lines(3) })
      const run = await reached(host, '66', 'Completed')
      expect(itemOf(run, 'sum')?.Data).toEqual({
        result: { total: 3, completed: 3, failedCount: 0, failed: [] },
        data: [10, 20, 30],
      })
      expect(await read(host, '66/Order.lines/2', 'Line')).toMatchObject({
        Status: 'Completed',
        Realm: '42',
        Parent: { Process: 'Order', TransactionID: '66', ReplayID: 0, Place: 'lines' },
      })
    })

    it('a run whose list is empty goes on at once', async () => {
      const host = await start()
      await queue(host, '67', { lines: [] })
      const run = await reached(host, '67', 'Completed')
      expect(itemOf(run, 'sum')?.Data).toEqual({
        result: { total: 0, completed: 0, failedCount: 0, failed: [] },
        data: [],
      })
    })

    it('a run whose child fails, fails itself and names it; after a resume it goes on', async () => {
      const host = await start()
      await queue(host, '68', { lines: lines(3, [2]) })
      const run = await reached(host, '68', 'Failed')
      expect(run.ErrorClass).toBe('children_failed')
      expect(itemOf(run, 'lines')).toMatchObject({
        Status: 'Failed',
        Data: { total: 3, completed: 2, failedCount: 1, failed: ['2'] },
      })
    })
  })
}
