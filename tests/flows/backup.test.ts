import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { generateKeyRing } from '@integration-host/shared/secrets/envelope'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { StartedBackends } from '../support/backends/backend.ts'
import { startPrivateServers } from '../support/backends/private-servers.ts'
import { requestDemoApi, connectCompany, waitForRun } from '../support/clients/user-actions.ts'
import { runProcess } from '@integration-host/shared/test-support/start-process'
import { startSystem, type System } from '../support/system.ts'

const SCRIPT = fileURLToPath(new URL('../../scripts/backup.ts', import.meta.url))
const REALM = '9341453908059889'
const KEYS = generateKeyRing().reveal()

describe('a backup of an installation and its restore drill', () => {
  let servers: StartedBackends
  let system: System
  let folder: string
  const urlOf = (kind: 'postgres' | 'redis'): string => servers.backends[kind]?.url ?? ''

  beforeAll(async () => {
    // This test starts its own Redis, because a backup copies the whole Redis server.
    servers = await startPrivateServers(['postgres', 'redis'])
    process.env['TEST_DATABASE_URL'] = urlOf('postgres')
    process.env['TEST_REDIS_URL'] = urlOf('redis')
    folder = await mkdtemp(join(tmpdir(), 'backup-'))
    system = await startSystem(['sandbox-provider', 'coordinator', 'demo-api'])
    system.start('token-service', { CREDENTIAL_KEYS: KEYS })
    await system.ready('token-service')
    expect((await connectCompany(system, REALM)).status).toBe(302)
    await requestDemoApi(system, '/queue?number=77')
    await waitForRun(system, '77', 0, 'Completed')
  })
  afterAll(async () => {
    await system[Symbol.asyncDispose]()
    await servers.stop()
    await rm(folder, { recursive: true })
  })

  async function backup(
    command: 'save' | 'drill',
    name: string,
    env: Readonly<Record<string, string>> = {},
  ): Promise<{ readonly code: number | null; readonly output: string }> {
    const { code, stdout, stderr } = await runProcess([SCRIPT, command, join(folder, name)], {
      env: {
        DATABASE_URL: system.databaseUrl,
        REDIS_URL: urlOf('redis'),
        REDIS_KEY_PREFIX: system.redisKeyPrefix,
        DRILL_DATABASE_URL: urlOf('postgres'),
        CREDENTIAL_KEYS: KEYS,
        ...env,
      },
    })
    return { code, output: stdout + stderr }
  }

  it('a backup can be saved while the system runs, and its restore drill restores every run and credential', async () => {
    expect(await backup('save', 'first')).toMatchObject({ code: 0 })
    const { code, output } = await backup('drill', 'first')
    expect(output).toContain('postgres: 1 runs with 3 items')
    expect(output).toContain('redis: 1 credentials, all of them can be decrypted')
    expect(code).toBe(0)
  })

  it('a backup does not overwrite an existing folder of the same name', async () => {
    expect(await backup('save', 'first')).toMatchObject({ code: 1 })
    expect(await backup('drill', 'first')).toMatchObject({ code: 0 })
  })

  it('a restore drill leaves no database behind and prints no secret', async () => {
    const { output } = await backup('drill', 'first')
    const sql = postgres(urlOf('postgres'), { max: 1 })
    const left = await sql`select datname from pg_database where datname like 'restore_drill_%'`
    await sql.end()
    expect(left).toEqual([])
    expect(output).not.toContain(KEYS.slice(3))
    expect(output).not.toContain(new URL(urlOf('postgres')).password)
  })

  it.each([
    ['a file of the backup has changed', 'redis.rdb was modified since it was saved', 'redis.rdb'],
    ['the backup was interrupted', 'manifest.json is missing', 'manifest.json'],
  ])('a restore drill fails when %s', async (_, reason, file) => {
    const copy = `without-${file}`
    await cp(join(folder, 'first'), join(folder, copy), { recursive: true })
    if (file === 'manifest.json') await rm(join(folder, copy, file))
    else {
      const bytes = await readFile(join(folder, copy, file))
      bytes[20] = (bytes[20] ?? 0) ^ 1
      await writeFile(join(folder, copy, file), bytes)
    }
    const { code, output } = await backup('drill', copy)
    expect([code, output]).toEqual([1, expect.stringContaining(reason)])
  })

  it('a backup is rejected if REDIS_URL lists several servers, because their data may differ', async () => {
    const REDIS_URL = `${urlOf('redis')},127.0.0.1:2`
    const { code, output } = await backup('save', 'listed', { REDIS_URL })
    expect([code, output]).toEqual([
      1,
      expect.stringContaining('REDIS_URL must name a single server, or Sentinels'),
    ])
  })

  it('a restore drill fails if CREDENTIAL_KEYS cannot decrypt the credentials of the backup', async () => {
    const { code, output } = await backup('drill', 'first', {
      CREDENTIAL_KEYS: generateKeyRing().reveal(),
    })
    expect([code, output]).toEqual([
      1,
      expect.stringContaining(
        `1 of 1 credentials cannot be decrypted with CREDENTIAL_KEYS, ACC-${REALM} first`,
      ),
    ])
  })

  it('a restore drill fails if the database rows in the backup are inconsistent', async () => {
    const sql = postgres(system.databaseUrl, { max: 1 })
    await sql`delete from "Order_Item" where "StepName" = 'csv'`
    await sql.end()
    expect(await backup('save', 'torn')).toMatchObject({ code: 0 })
    const { code, output } = await backup('drill', 'torn')
    expect([code, output]).toEqual([
      1,
      expect.stringContaining('1 completed runs have no completed item'),
    ])
  })
})
