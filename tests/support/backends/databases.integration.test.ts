import postgres from 'postgres'
import { afterEach, expect, it, vi } from 'vitest'
import { createDatabase } from '../../../packages/postgres/test-support/database.ts'
import { backend } from '../system.ts'
import setup from './find-backends.ts'

afterEach(() => {
  vi.unstubAllEnvs()
})

it('the databases that tests have kept are dropped at the end of their run', async () => {
  const sql = postgres(backend('TEST_DATABASE_URL'), { max: 1 })
  const count = async (name: string): Promise<number> =>
    (await sql`select 1 from pg_database where datname = ${name}`).length
  // The servers of this run are used again, at whatever level they were found.
  vi.stubEnv('TEST_BACKENDS', undefined)
  vi.stubEnv('TEST_RUN', undefined)
  const end = await setup()
  await using kept = await createDatabase()
  const name = new URL(kept.url).pathname.slice(1)
  expect(await count(name)).toBe(1)
  await end()
  expect(await count(name)).toBe(0)
  await sql.end()
})
