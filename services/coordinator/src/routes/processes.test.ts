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

const keyOf = (id: string): string => `${id}-`.padEnd(40, 'x')
const keys = [
  {
    id: 'console',
    scopes: ['transactions:read', 'transactions:operate', 'act-for'],
    realms: ['*'],
    processes: ['*'],
  },
  { id: 'company-43', scopes: ['transactions:read'], realms: ['43'], processes: ['*'] },
]

let backends: Backends
let host: Fixture
beforeAll(async () => {
  backends = await openBackends('embedded')
  const file = join(backends.dataDir, 'keys.json')
  const list = keys.map((key) => ({ ...key, sha256: digestOf(keyOf(key.id)) }))
  await writeFile(file, JSON.stringify(list))
  host = await startFixture(backends, { env: { SERVICE_KEYS_FILE: file } })
})
afterAll(async () => {
  await host[Symbol.asyncDispose]()
  await backends[Symbol.asyncDispose]()
})

const by = (id: string) => ({ Authorization: `Bearer ${keyOf(id)}` })
const act = async (action: string, body = {}) => {
  const headers = { ...by('console'), 'Acting-For': 'ada@example.com' }
  const init = { method: 'POST', headers, body: JSON.stringify(body) }
  return (await host.call(`/processes/OrderProcess/${action}`, init)).json()
}

describe('a paused process', () => {
  it('a paused process shows when, by whom and why it was paused, but a key of one company sees only the time', async () => {
    const why = { PausedBy: 'ada@example.com', Reason: 'the ERP is down' }
    const paused = await act('pause', { Reason: why.Reason })
    expect(paused).toMatchObject({ Paused: true, PausedAt: expect.any(String), ...why })
    const seenBy = async (id: string) => (await host.call('/processes', { headers: by(id) })).json()
    const { PausedAt } = paused as { PausedAt: string }
    expect(await seenBy('console')).toMatchObject({ items: [{ PausedAt, ...why }] })
    expect(await seenBy('company-43')).toMatchObject({
      items: [{ Paused: true, PausedAt, PausedBy: null, Reason: null }],
    })
    expect(await act('resume')).toMatchObject({ Paused: false, PausedAt: null, Reason: null })
  })
})
