import { until } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type Fixture, startEmbedded } from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'
import { defineTarget } from '../step/targets.ts'

/**
 * The gates by name. The input of a run of the process `Sale` names a gate in its member `gate`. The run stays in its
 * step until the test opens this gate.
 */
const gates = new Map<string, PromiseWithResolvers<void>>()
const gateOf = (customer: string): PromiseWithResolvers<void> => {
  const gate = gates.get(customer) ?? Promise.withResolvers<void>()
  gates.set(customer, gate)
  return gate
}
const sale = defineProcess('Sale', {
  input: z.object({ customer: z.string().default('unknown'), gate: z.string().optional() }),
  concurrency: 1,
  concurrencyKey: ({ customer }) => {
    if (customer === 'throws') throw new RangeError(`no such customer: ${customer}`)
    return customer === 'a number' ? (7 as unknown as string) : customer
  },
}).step('only', async (step) => {
  await gateOf(step.initialData.gate ?? '').promise
  return step.complete()
})
const free = defineProcess('Free').step('only', (step) => step.complete())
const shared = defineProcess('Shared', {
  input: z.string(),
  concurrency: { total: 2, perKey: 1 },
}).step('only', async (step) => {
  await gateOf(step.initialData).promise
  return step.complete()
})
const erp = defineTarget('erp', { url: 'http://erp.example', perSecond: 0.5, concurrent: 2 })
const narrow = defineProcess('Narrow', {
  concurrency: 5,
  targets: {
    ledger: erp,
    own: { url: 'http://own.example', concurrent: 1 },
    free: { url: 'http://free.example' },
  },
}).step('only', (step) => step.complete())

let host: Fixture
beforeAll(async () => {
  // No poll happens during the test. A released slot must therefore be assigned directly after the transition that
  // releases it.
  const env = { LOCAL_PULL_SECONDS: '60' }
  host = await startEmbedded({ processes: [sale, free, narrow, shared], env })
  gateOf('').resolve()
})
afterAll(async () => {
  for (const { resolve } of gates.values()) resolve()
  await host[Symbol.asyncDispose]()
})

const post = (path: string, body: unknown) =>
  host.call(`/processes/Sale/transactions${path}`, postJson(body))

describe('a process with concurrency and concurrencyKey', () => {
  it('a run waits while another run with the same concurrency key is in progress, and runs with other keys do not wait', async () => {
    await host.queue('a1', { customer: 'ada', gate: 'ada' })
    await host.reached('a1', 'Running')
    await host.queue('a2', { customer: 'ada' })
    const waiting = await host.reached('a2', 'Waiting')
    expect(waiting).toMatchObject({
      WaitingFor: 'concurrency',
      ConcurrencyKey: 'ada',
      Attempt: 0,
      Attempts: [],
    })
    await host.queue('b1', { customer: 'bob' })
    await host.reached('b1', 'Completed')
    const found = await host.call('/processes/Sale/transactions?waitingFor=concurrency')
    expect(await found.json()).toMatchObject({ items: [{ TransactionID: 'a2' }] })
    await until(async () =>
      (await (await fetch(`${host.url}/metrics`)).text()).includes(
        'coordinator_waiting_runs{for="concurrency",service="coordinator"} 1',
      ),
    )
    gateOf('ada').resolve()
    await host.reached('a1', 'Completed')
    expect((await host.reached('a2', 'Completed')).Attempts).toHaveLength(1)
  })

  it('the cancellation of a run assigns its slot to the next run at once', async () => {
    await host.queue('c1', { customer: 'cora', gate: 'never' })
    await host.reached('c1', 'Running')
    await host.queue('c2', { customer: 'cora' })
    await host.reached('c2', 'Waiting')
    expect((await post('/c1/cancel', {})).status).toBe(200)
    await host.reached('c2', 'Completed')
  })

  it('the function concurrencyKey gets the data that the input schema returns', async () => {
    await host.queue('d1', {})
    expect(await host.reached('d1', 'Completed')).toMatchObject({
      InitialData: {},
      ConcurrencyKey: 'unknown',
    })
  })

  it.each([
    ['throws', 'throws', /threw RangeError$/],
    ['returns a number', 'a number', /must return a text/],
    ['returns an empty text', '', /must return a text/],
    ['returns a text that is too long', 'x'.repeat(256), /must return a text/],
  ])('a transaction is rejected and not stored if the function %s', async (_, customer, error) => {
    const rejected = {
      code: 'input_invalid',
      errors: [expect.stringMatching(error)],
    }
    const response = await host.queue('bad', { customer })
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject(rejected)
    expect((await host.call('/processes/Sale/transactions/bad')).status).toBe(404)

    const id = crypto.randomUUID()
    const lines = [
      { TransactionID: 'bad', InitialData: { customer } },
      { TransactionID: id, InitialData: { customer: 'bob' } },
    ]
    expect(await (await post('/bulk', lines)).json()).toMatchObject({
      results: [{ outcome: 'invalid', ...rejected }, { outcome: 'queued' }],
    })
    await host.reached(id, 'Completed')
    const replay = await post(`/${id}/replays`, { InitialData: { customer } })
    expect(replay.status).toBe(400)
    expect(await replay.json()).toMatchObject(rejected)
  })

  it('a replay with other initial data gets the concurrency key of that data, and a replay with the same data keeps its key', async () => {
    await host.queue('r1', { customer: 'ada' })
    await host.reached('r1', 'Completed')
    expect((await post('/r1/replays', { InitialData: { customer: 'bob' } })).status).toBe(202)
    expect(await host.reached('r1', 'Completed', 1)).toMatchObject({ ConcurrencyKey: 'bob' })
    expect((await post('/r1/replays', {})).status).toBe(202)
    expect(await host.reached('r1', 'Completed', 2)).toMatchObject({ ConcurrencyKey: 'bob' })
  })

  it('a limit for each company lets the runs of other companies start, up to the total of the process', async () => {
    const queue = (id: string, Realm?: string) =>
      host.call(
        '/processes/Shared/transactions',
        postJson({ TransactionID: id, InitialData: id, Realm }),
      )
    const is = (id: string, status: string) =>
      until(async () => {
        const run = (await (await host.call(`/processes/Shared/transactions/${id}`)).json()) as {
          readonly Status: string
        }
        return run.Status === status
      })
    await queue('a1', 'r1')
    await is('a1', 'Running')
    await queue('a2', 'r1')
    await is('a2', 'Waiting')
    await queue('none')
    await is('none', 'Running')
    await queue('b1', 'r2')
    await is('b1', 'Waiting')
    // The company r1 has a slot, so the slot of the run without a company goes to r2, although a2 has waited longer.
    for (const id of ['b1', 'a2', 'none']) gateOf(id).resolve()
    await is('b1', 'Completed')
    await is('a2', 'Waiting')
    gateOf('a1').resolve()
    await is('a2', 'Completed')
    const list = (await (await host.call('/processes/Shared/transactions')).json()) as {
      readonly items: readonly { readonly TransactionID: string; readonly ConcurrencyKey: string }[]
    }
    expect(
      Object.fromEntries(list.items.map((run) => [run.TransactionID, run.ConcurrencyKey])),
    ).toEqual({ a1: 'r1', a2: 'r1', b1: 'r2', none: '(none)' })
  })

  it('GET /processes shows the targets with limits, and a shared target under its own name', async () => {
    const { items } = (await (await host.call('/processes')).json()) as {
      readonly items: readonly { readonly Process: string; readonly Targets?: unknown }[]
    }
    const targetsOf = (name: string) => items.find(({ Process }) => Process === name)?.Targets
    expect(targetsOf('Narrow')).toEqual([
      { Name: 'erp', Shared: true, PerSecond: 0.5, Concurrent: 2 },
      { Name: 'own', Shared: false, PerSecond: null, Concurrent: 1 },
    ])
    expect(targetsOf('Free')).toBeUndefined()
  })

  it('GET /processes/{process} shows the concurrency limit of the process', async () => {
    const limitOf = async (name: string) => (await host.call(`/processes/${name}`)).json()
    expect(await limitOf('Sale')).toMatchObject({ Concurrency: 1, ConcurrencyByKey: true })
    expect(await limitOf('Narrow')).toMatchObject({ Concurrency: 5, ConcurrencyByKey: false })
    expect(await limitOf('Free')).toMatchObject({ Concurrency: null, ConcurrencyByKey: false })
    expect(await limitOf('Shared')).toMatchObject({
      Concurrency: 2,
      ConcurrencyByKey: false,
      ConcurrencyPerKey: 1,
    })
  })
})
