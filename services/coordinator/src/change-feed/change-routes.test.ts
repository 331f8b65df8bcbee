import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { bearer, type Fixture, startEmbedded, type TestKey } from '../../test-support/fixture.ts'
import { createChangeCursors } from './change-cursors.ts'
import { sale } from '../change/changes.contract.ts'
import { postJson } from '@integration-host/shared/test-support/post-json'

const keys: readonly TestKey[] = [
  { id: 'reader', scopes: ['transactions:read'] },
  { id: 'company-43', scopes: ['transactions:read'], realms: ['43'] },
  { id: 'auditor', scopes: ['audit:read'] },
]

let host: Fixture
beforeAll(async () => {
  host = await startEmbedded({ keys, processes: [sale] })
})
afterAll(() => host[Symbol.asyncDispose]())

const get = (path: string, id = 'reader') => host.call(path, { headers: bearer(id) })

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
    const queued = await host.call(
      '/processes/ChangeFeed/transactions',
      postJson({ TransactionID: '1', InitialData: null }),
    )
    expect(await queued.json()).toMatchObject({ code: 'process_built_in' })
  })
})
