import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Backends,
  type Fixture,
  openBackends,
  startFixture,
} from '../../test-support/fixture.ts'

// A run may be purged directly after its end. A retention pass begins every 3 s, which is 60 times REMOTE_PULL_SECONDS.
const env = {
  RETENTION_COMPLETED_DAYS: '0.000000001',
  RETENTION_FAILED_DAYS: '0',
  REMOTE_PULL_SECONDS: '0.05',
}
const MARKER = 'planted-marker'
const transactions = '/processes/OrderProcess/transactions'

describe.each(['embedded', 'real'] as const)('retention on the %s backends', (kind) => {
  let backends: Backends
  let host: Fixture
  beforeAll(async () => {
    backends = await openBackends(kind)
    host = await startFixture(backends, { env })
    await host.queue('old', MARKER)
    await eventually(async () =>
      expect(await host.run('old')).toMatchObject({
        Status: 'Completed',
        PurgedAt: expect.any(String),
      }),
    )
  })
  afterAll(async () => {
    await host[Symbol.asyncDispose]()
    await backends[Symbol.asyncDispose]()
  })
  const post = (path: string, body: string, type = 'application/json') =>
    host.call(path, { method: 'POST', headers: { 'Content-Type': type }, body })

  it('a purged run is returned as a stub (without data, items and attempts), and no list contains it', async () => {
    expect(await host.run('old')).toMatchObject({
      Process: 'OrderProcess',
      TransactionID: 'old',
      Status: 'Completed',
      InitialData: null,
      Items: [],
      Attempts: [],
    })
    const list = await (await host.call(transactions)).json()
    expect(list).toMatchObject({ items: [] })
  })

  it('the files of a purged run are removed, and no file of the coordinator contains data of the run', async () => {
    await eventually(async () =>
      expect(await readdir(join(backends.dataDir, 'OrderCSV'))).toEqual([]),
    )
    // The test waits for the end of the pass, when the memory source rewrites its files.
    await eventually(async () => {
      const all = await readdir(backends.dataDir, { recursive: true, withFileTypes: true })
      const files = all.filter((entry) => entry.isFile())
      const texts = await Promise.all(
        files.map(({ parentPath, name }) => readFile(join(parentPath, name), 'utf8')),
      )
      expect(texts.join('')).not.toContain(MARKER)
    })
  })

  it('a late duplicate of a purged run starts no run; the response contains the stub of the purged run', async () => {
    const calls = host.target.calls.length
    for (const data of [MARKER, 'other data']) {
      const response = await host.queue('old', data)
      expect(response.status).toBe(200)
      expect(await response.json()).toMatchObject({ Status: 'Completed', InitialData: null })
    }
    const line = JSON.stringify({ TransactionID: 'old', InitialData: MARKER })
    const bulk = await post(`${transactions}/bulk`, line, 'application/x-ndjson')
    expect(await bulk.json()).toMatchObject({ exists: 1, queued: 0, conflicts: 0 })
    expect(host.target.calls).toHaveLength(calls)
  })

  it('the replay or resume of a purged run is rejected with 409 transaction_purged', async () => {
    for (const path of ['replays', 'resume']) {
      const response = await post(`${transactions}/old/${path}`, '{}')
      expect(response.status).toBe(409)
      expect(await response.json()).toMatchObject({ code: 'transaction_purged' })
    }
  })

  it('the integrity check reports no violation, and the action log and the metrics report the number of purged runs', async () => {
    const integrity = await (await host.call('/integrity')).json()
    expect(integrity).toMatchObject({ ok: true, headers: {} })
    await eventually(async () => {
      const actions = await (await host.call('/actions')).json()
      expect(actions).toMatchObject({
        items: expect.arrayContaining([
          expect.objectContaining({ KeyID: 'coordinator:retention', Action: 'purge' }),
        ]),
      })
    })
    const metrics = await (await host.call('/metrics')).text()
    expect(metrics).toMatch(/coordinator_purged_runs_total\{.*process="OrderProcess".*\} 1/)
    expect(metrics).toMatch(/coordinator_retention_pass_age_seconds\{.*\} \d/)
  })
})
