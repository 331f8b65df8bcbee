import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { digestOf } from '@integration-host/shared/access/access-keys'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Backends,
  type Fixture,
  openBackends,
  startFixture,
} from '../../test-support/fixture.ts'
import { createChangeCursors } from '../change-feed/change-cursors.ts'
import { sale } from './changes.contract.ts'

const keyOf = (id: string): string => `${id}-`.padEnd(40, 'x')
const keys = [
  { id: 'reader', scopes: ['transactions:read'], realms: ['*'], processes: ['*'] },
  { id: 'company-43', scopes: ['transactions:read'], realms: ['43'], processes: ['*'] },
  { id: 'auditor', scopes: ['audit:read'], realms: ['*'], processes: ['*'] },
]

let backends: Backends
let host: Fixture
beforeAll(async () => {
  backends = await openBackends('embedded')
  const file = join(backends.dataDir, 'keys.json')
  const list = keys.map((key) => ({ ...key, sha256: digestOf(keyOf(key.id)) }))
  await writeFile(file, JSON.stringify(list))
  host = await startFixture(backends, { env: { SERVICE_KEYS_FILE: file }, processes: [sale] })
})
afterAll(async () => {
  await host[Symbol.asyncDispose]()
  await backends[Symbol.asyncDispose]()
})

const get = (path: string, id = 'reader') =>
  host.call(path, { headers: { Authorization: `Bearer ${keyOf(id)}` } })

describe('GET /realms/{realm}/changes', () => {
  it('GET /realms/{realm}/changes shows the position of the change feed and the last sweep', async () => {
    const { position } = await createChangeCursors(host.source).beginCursor('42')
    const begun = await (await get('/realms/42/changes')).json()
    expect(begun).toEqual({
      Realm: '42',
      ReadUntil: position,
      LagSeconds: expect.any(Number) as number,
      SweptAt: null,
      Events: 0,
      Incomplete: null,
    })
    await createChangeCursors(host.source).moveCursor('42', {
      position,
      events: 3,
      incomplete: 'Currency: rejected',
    })
    expect(await (await get('/realms/42/changes')).json()).toMatchObject({
      SweptAt: expect.any(String) as string,
      Events: 3,
      Incomplete: 'Currency: rejected',
    })
  })

  it.each<[status: number, path: string, key?: string]>([
    [404, '/realms/44/changes'],
    [400, '/realms/a%20b/changes'],
    [400, '/realms/42/changes?limit=1'],
    [403, '/realms/42/changes', 'company-43'],
    [404, '/realms/43/changes', 'company-43'],
    [403, '/realms/42/changes', 'auditor'],
  ])('GET /realms/{realm}/changes responds %i to %s with the key %s', async (status, path, key) => {
    expect((await get(path, key)).status).toBe(status)
  })

  it('the process that reads the change feed is built into the coordinator', async () => {
    const { items } = (await (await get('/processes')).json()) as {
      items: object[]
    }
    expect(items).toContainEqual(expect.objectContaining({ Process: 'ChangeFeed', BuiltIn: true }))
    const queued = await host.call('/processes/ChangeFeed/transactions', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ TransactionID: '1', InitialData: null }),
    })
    expect(await queued.json()).toMatchObject({ code: 'process_built_in' })
  })
})
