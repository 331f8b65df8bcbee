/**
 * Tests that a process writes its uncommitted token pairs to RESCUE_DIR if it shuts down while Redis is unavailable
 * (I6).
 */
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import {
  silent,
  startTestService,
  testKeys,
  type TestRedis,
  type TestService,
  usable,
  useTestRedis,
} from '../../test-support/service-fixture.ts'
import { openRescueFolder } from '../adapters/file/rescue-folder.ts'
import type { Failpoint } from './refresh.ts'

const NAME = 'ACC-1'
let keys: KeyRing
let folder: string
let relay: Relay
let redis: TestRedis
let provider: ScriptedProvider
let cleanup: AsyncDisposableStack

beforeEach(async () => {
  cleanup = new AsyncDisposableStack()
  keys = testKeys()
  folder = await mkdtemp(join(tmpdir(), 'rescue-'))
  cleanup.defer(() => rm(folder, { recursive: true }))
  provider = cleanup.use(await startScriptedProvider())
  relay = cleanup.use(await startRelay(process.env['TEST_REDIS_URL'] ?? '', 6379))
  redis = await useTestRedis(cleanup, { keys, url: relay.url })
})
afterEach(() => cleanup.disposeAsync())

async function start(failpoint: (at: Failpoint) => void = () => {}): Promise<TestService> {
  const { store, authorizations, connection } = redis
  const rescue = await openRescueFolder(folder, { keys, logger: silent })
  return cleanup.use(
    await startTestService({
      provider,
      store,
      authorizations,
      connection,
      rescue,
      keys,
      failpoint,
    }),
  )
}
const refresh = (service: TestService) =>
  service.ask(`/credentials/${NAME}/refresh`, { method: 'POST' })
const files = () => readdir(folder)
const sentTokens = () =>
  provider.requests
    .filter(({ grant }) => grant === 'refresh_token')
    .map(({ form }) => form.get('refresh_token'))

/** Refreshes, loses Redis before the commit, and shuts the process down. Resolves with the new access token. */
async function shutDownUncommitted(): Promise<unknown> {
  const service = await start((at) => (at === 'before commit' ? relay.away() : undefined))
  await service.connect('1')
  expect(await refresh(service)).toMatchObject({ status: 200, body: { Version: 2 } })
  const { body } = await service.ask(`/credentials/${NAME}/token`)
  await service[Symbol.asyncDispose]()
  expect(await files()).toEqual([`${NAME}.2.rescue.json`])
  return body['Authenticator']
}

describe('a rotated token pair that could not be stored before the process shut down', () => {
  it('after a restart, token-service stores a token pair from RESCUE_DIR before it sends any refresh token', async () => {
    const token = await shutDownUncommitted()
    const next = await start()
    const early = refresh(next)
    relay.restore()
    await early
    await eventually(async () => expect(await files()).toEqual([]))
    await usable(redis)
    expect(await next.ask(`/credentials/${NAME}`)).toMatchObject({
      status: 200,
      body: { Status: 'active' },
    })
    expect(sentTokens().length).toBe(new Set(sentTokens()).size)
    if (sentTokens().length === 1)
      expect((await next.ask(`/credentials/${NAME}/token`)).body['Authenticator']).toBe(token)
    expect((await refresh(next)).status).toBe(200)
  })

  it('the next process deletes the file of a token pair in RESCUE_DIR if the company has been connected again', async () => {
    await shutDownUncommitted()
    relay.restore()
    await usable(redis)
    const { store, authorizations } = redis
    const other = cleanup.use(await startTestService({ provider, store, authorizations, keys }))
    expect((await other.connect('1')).status).toBe(201)
    const granted = (await other.ask(`/credentials/${NAME}/token`)).body['Authenticator']
    const next = await start()
    await eventually(async () => expect(await files()).toEqual([]))
    expect((await next.ask(`/credentials/${NAME}/token`)).body['Authenticator']).toBe(granted)
  })

  it('a token pair stays in its file in RESCUE_DIR until Redis is available, even after another shutdown', async () => {
    await shutDownUncommitted()
    const next = await start()
    await next[Symbol.asyncDispose]()
    expect(await files()).toEqual([`${NAME}.2.rescue.json`])
  })
})
