/** Tests coordinators with different definitions of one process, as during a rolling update. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { until } from '@integration-host/shared/test-support/eventually'
import { type Backends, type Fixture, openBackends, startFixture } from '../test-support/fixture.ts'
import { defineProcess } from './step/api.ts'

const env = { REMOTE_PULL_SECONDS: '0.05' }
let isThirdHeld = false
const before = defineProcess('Grown')
  .step('first', (step) => step.complete())
  .step('second', (step) => step.complete())
const after = before.step('third', (step) =>
  isThirdHeld ? step.waitFor(100) : step.complete('done'),
)
/** A process that only the coordinator with the earlier definition has loaded. */
const marker = defineProcess('Marker').step('one', (step) => step.complete())

describe('two coordinators with different definitions of one process', () => {
  let backends: Backends
  let newHost: Fixture
  beforeAll(async () => {
    backends = await openBackends('real', { Grown: ['first', 'second', 'third'], Marker: ['one'] })
    newHost = await startFixture(backends, { processes: [after], env })
  })
  afterAll(async () => {
    await newHost[Symbol.asyncDispose]()
    await backends[Symbol.asyncDispose]()
  })
  const startOld = (): Promise<Fixture> =>
    startFixture(backends, { processes: [before, marker], env })

  it('with two definitions of a process, each run completes and each of its steps runs once, whichever coordinator runs it', async () => {
    await using oldHost = await startOld()
    const ids = Array.from({ length: 20 }, (_, index) => `run-${index}`)
    await Promise.all(ids.map((id, index) => (index % 2 === 0 ? oldHost : newHost).queue(id)))
    for (const id of ids) {
      await newHost.reached(id, 'Completed')
      const { Attempts } = await newHost.run(id)
      const steps = Attempts.map(({ StepName }) => StepName)
      // The coordinator that records the result of a step decides which step is next. So the run ends after `second` if
      // the coordinator with the earlier definition has run this step.
      expect(steps).toEqual(['first', 'second', 'third'].slice(0, steps.length))
      expect(steps.length).toBeGreaterThanOrEqual(2)
    }
  })

  it('a coordinator does not fail a run at a step that only the other coordinator has', async () => {
    const { database } = backends
    if (database === null) throw new Error('no database')
    isThirdHeld = true
    await newHost.queue('held')
    await until(async () => (await newHost.run('held')).StepName === 'third')
    await using oldHost = await startOld()
    for (const id of ['1', '2', '3']) {
      await database.sql`
        insert into "Order_Header" ("Process", "TransactionID", "InitialData") values ('Marker', ${id}, '1')`
      await until(async () => {
        const response = await oldHost.call(`/processes/Marker/transactions/${id}`)
        return ((await response.json()) as { Status?: string }).Status === 'Completed'
      })
    }
    expect(await newHost.run('held')).toMatchObject({ StepName: 'third', CompletedAt: null })
    isThirdHeld = false
    const { Items } = await newHost.reached('held', 'Completed')
    expect(Items.map(({ StepName }) => StepName)).toEqual(['first', 'second', 'third'])
  })
})
