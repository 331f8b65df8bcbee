/** Tests coordinators with different processes on one database and one broker. */
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { until } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Backends, type Fixture, openBackends, startFixture } from '../test-support/fixture.ts'
import { defineProcess } from './step/api.ts'
import { createPurgePasses } from './retention/purge-passes.ts'

// A retention pass begins after 60 intervals of the remote pull: every 3 s in this test.
const env = {
  REMOTE_PULL_SECONDS: '0.05',
  RETENTION_COMPLETED_DAYS: '0',
  RETENTION_FAILED_DAYS: '0',
}
const alpha = defineProcess('Alpha').step('one', (step) => step.complete())
const beta = defineProcess('Beta', {
  files: ({ transactionId, settings }) => [join(settings.dataDir, `${transactionId}.txt`)],
})
  .step('first', (step) => {
    if (step.initialData === 'wait') return step.waitFor(3_600_000)
    return step.complete()
  })
  .step('second', async (step) => {
    await writeFile(join(step.settings.dataDir, `${step.transactionId}.txt`), 'data')
    return step.complete()
  })

describe('two coordinators with different processes on one database and broker', () => {
  let backends: Backends
  let alphaHost: Fixture
  beforeAll(async () => {
    backends = await openBackends('real', { Alpha: ['one'], Beta: ['first', 'second'] })
    alphaHost = await startFixture(backends, { processes: [alpha], env })
  })
  afterAll(async () => {
    await alphaHost[Symbol.asyncDispose]()
    await backends[Symbol.asyncDispose]()
  })
  const startBeta = (): Promise<Fixture> => startFixture(backends, { processes: [beta], env })
  const ids = { next: 0 }
  const newId = (name: string): string => `${name}-${(ids.next += 1)}`
  const sql = () => {
    if (backends.database === null) throw new Error('no database')
    return backends.database.sql
  }
  const rowOf = async (id: string) => {
    const [row] = await sql()`
      select "Status", "StepName", "Version", "Attempt", "SweepCount", "UpdatedAt"
      from "Order_Header" where "Process" = 'Beta' and "TransactionID" = ${id}`
    return row
  }
  /** Resolves when the sweeper of the first coordinator has started a run that no other coordinator knows. */
  const swept = async (): Promise<void> => {
    const id = newId('inserted')
    await sql()`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData") values ('Alpha', ${id}, '1')`
    await alphaHost.reached(id, 'Completed')
  }
  const integrity = async () =>
    (await (await alphaHost.call('/integrity')).json()) as {
      ok: boolean
      unknownProcesses: Record<string, number>
    }

  it('each coordinator runs its own transactions, and rejects transactions of the other process', async () => {
    await using betaHost = await startBeta()
    const [a, b] = [newId('a'), newId('b')]
    await alphaHost.queue(a)
    await betaHost.queue(b)
    await alphaHost.reached(a, 'Completed')
    await betaHost.reached(b, 'Completed')
    const rejected = await alphaHost.call('/processes/Beta/transactions', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: '{"TransactionID": "x", "InitialData": 1}',
    })
    expect([rejected.status, await rejected.json()]).toMatchObject([
      404,
      { code: 'process_not_found' },
    ])
  })

  it('the runs of a stopped coordinator stay unchanged until this coordinator is started again', async () => {
    const [queued, inserted] = [newId('queued'), newId('inserted')]
    {
      await using betaHost = await startBeta()
      await betaHost.call('/processes/Beta/pause', { method: 'POST' })
      await betaHost.queue(queued)
    }
    // No coordinator has the step `removed`. If the running coordinator swept this row of the other process, it would
    // fail the run as step_unknown.
    await sql()`
      insert into "Order_Header" ("Process", "TransactionID", "StepName", "InitialData")
      values ('Beta', ${inserted}, 'removed', '1')`
    const before = [await rowOf(queued), await rowOf(inserted)]
    for (let sweep = 0; sweep < 5; sweep += 1) await swept()
    expect([await rowOf(queued), await rowOf(inserted)]).toEqual(before)

    await using betaHost = await startBeta()
    await betaHost.call('/processes/Beta/resume', { method: 'POST' })
    await betaHost.reached(queued, 'Completed')
    const { Attempts } = await betaHost.run(queued)
    expect(Attempts.map(({ StepName, Attempt, Outcome }) => [StepName, Attempt, Outcome])).toEqual([
      ['first', 1, 'completed'],
      ['second', 1, 'completed'],
    ])
    expect((await betaHost.reached(inserted, 'Failed')).ErrorClass).toBe('step_unknown')
  })

  it('a process is reported as not loaded only while no coordinator runs it', async () => {
    {
      await using betaHost = await startBeta()
      const id = newId('waiting')
      await betaHost.queue(id, 'wait')
      await betaHost.reached(id, 'Retrying')
      await until(async () => (await integrity()).ok)
      expect(await integrity()).toMatchObject({ ok: true, unknownProcesses: {} })
      expect(await (await alphaHost.call('/processes')).json()).toMatchObject({ not_loaded: [] })
      // The other coordinator has no consumers while its process is paused.
      await betaHost.call('/processes/Beta/pause', { method: 'POST' })
      await until(async () => (await alphaHost.bus.depth('steps.Beta.first'))?.consumers === 0)
      expect(await integrity()).toMatchObject({ ok: true, unknownProcesses: {} })
      await betaHost.call('/processes/Beta/resume', { method: 'POST' })
    }
    await until(async () => !(await integrity()).ok)
    expect((await integrity()).unknownProcesses).toEqual({ Beta: 1 })
    expect(await (await alphaHost.call('/processes')).json()).toMatchObject({
      not_loaded: [{ Process: 'Beta', Unfinished: 1 }],
    })
  })

  it('an erasure by one coordinator removes the files of runs of the other coordinator', async () => {
    await using betaHost = await startBeta()
    const id = newId('erased')
    const file = join(backends.dataDir, `${id}.txt`)
    await betaHost.queue(id, 'data', '77')
    await betaHost.reached(id, 'Completed')
    expect(existsSync(file)).toBe(true)
    const erased = await alphaHost.call('/erasures', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: '{"Realm": "77", "Reason": "the company asked for it"}',
    })
    expect(erased.status).toBe(200)
    expect(await betaHost.run(id)).toMatchObject({ InitialData: null })
    await until(() => !existsSync(file))
  })
})

it("coordinators with different processes do not prevent each other's retention passes", async () => {
  await using backends = await openBackends('real', {})
  await using source = await backends.openSource()
  const passes = createPurgePasses(source)
  const hour = 3_600_000
  const begin = (owner: string, ...processes: string[]) => passes.begin(owner, processes, hour)
  expect(await begin('one', 'X', 'Both')).toEqual({ kind: 'begun', lastPassMs: null })
  await passes.end('one', ['X', 'Both'])
  expect(await begin('one', 'X', 'Both')).toEqual({
    kind: 'waiting',
    lastPassMs: expect.any(Number),
  })
  expect(await begin('two', 'Y', 'Both')).toEqual({ kind: 'begun', lastPassMs: null })
  await passes.end('two', ['Y', 'Both'])
  expect(await begin('two', 'Y', 'Both')).toMatchObject({ kind: 'waiting' })
})
