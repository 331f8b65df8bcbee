/**
 * Tests of the lists over HTTP, with the embedded adapters. The contract suite of the stores tests each condition
 * (credential-lists.contract.ts).
 */
import { chmod, writeFile } from 'node:fs/promises'
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import {
  openTestFile,
  startTestService,
  type TestService,
  testKeys,
} from '../../test-support/service-fixture.ts'

const BOUNDED_KEY = 'a-key-that-is-bound-to-some-realms'
let provider: ScriptedProvider
let service: TestService
let closing: AsyncDisposableStack

beforeAll(async () => {
  closing = new AsyncDisposableStack()
  const keys = testKeys()
  provider = closing.use(await startScriptedProvider())
  const file = await openTestFile(keys)
  closing.defer(() => file.remove())
  const keyFile = join(file.folder, 'keys.json')
  const sha256 = createHash('sha256').update(BOUNDED_KEY).digest('hex')
  const entry = { id: 'erp', sha256, scopes: ['credentials:read'], realms: ['2*', '11'] }
  await writeFile(keyFile, JSON.stringify([{ ...entry, processes: [] }]))
  await chmod(keyFile, 0o600)
  const env = { SERVICE_KEYS_FILE: keyFile }
  service = closing.use(await startTestService({ provider, store: file.store, keys, env }))
  for (const realm of ['1', '10', '11', '2', '20', '3']) await service.connect(realm)
  const labels = { Label: 'Acme <b> & Söhne', Tags: { plan: 'a:b,c', team: 'x y' } }
  await service.ask('/credentials/ACC-10', {
    method: 'PATCH',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(labels),
  })
})
afterAll(() => closing.disposeAsync())

const list = async (query: string, key?: string) => {
  const headers = key === undefined ? {} : { Authorization: `Bearer ${key}` }
  const { status, body } = await service.ask(`/credentials?${query}`, { headers })
  expect([query, status]).toEqual([query, 200])
  const { items, next_cursor: next } = body as {
    items: { Environment: string }[]
    next_cursor: string | null
  }
  return { realms: items.map(({ Environment }) => Environment).join(' '), next }
}

describe('GET /credentials', () => {
  it('GET /credentials accepts states and classes in one parameter or in several, and combines the conditions', async () => {
    expect((await list('state=active,expiring')).realms).toBe('1 10 11 2 20 3')
    expect((await list('state=active&state=failing')).realms).toBe('1 10 11 2 20 3')
    expect((await list('state=failing,must_reconnect')).realms).toBe('')
    expect((await list('class=invalid_grant,hard_expired&class=transferred')).realms).toBe('')
    expect((await list('tag=plan:a:b,c')).realms).toBe('10')
    expect((await list('tag=plan:a:b,c&tag=team:x%20y')).realms).toBe('10')
    expect((await list('tag=plan:a:b,c&tag=team:x')).realms).toBe('')
    expect((await list('q=S%C3%96HNE&state=active')).realms).toBe('10')
    expect((await list('q=1')).realms).toBe('1 10 11')
    expect((await list('q=acc-2')).realms).toBe('2 20')
  })

  it('GET /credentials continues a list after the last credential of a page', async () => {
    const first = await list('state=active&limit=4')
    expect(first.realms).toBe('1 10 11 2')
    const second = await list(`state=active&limit=4&cursor=${first.next}`)
    expect(second).toStrictEqual({ realms: '20 3', next: null })
  })

  it.each([
    'state=',
    'state=faulted',
    'state=active,',
    'state=Active',
    'class=unknown',
    'class=toString',
    'tag=plan',
    'tag=:x',
    'tag=plan:x&tag=plan',
    `tag=plan:${'x'.repeat(650)}`,
    'q=',
    `q=${'x'.repeat(101)}`,
    'q=a&q=b',
    'cursor=1',
    'cursor=ACC-',
    'cursor=',
    'limit=0',
    'limit=501',
    'limit=-1',
    'limit=1.5',
    'limit=x',
    'limit=',
    'limit=1e3',
    'label=Acme',
  ])('GET /credentials responds 400 to %s', async (query) => {
    const { status, body } = await service.ask(`/credentials?${query}`)
    expect([status, body['code']]).toEqual([400, 'invalid_request'])
  })

  it('GET /credentials lists and counts only the realms to which the service key is bound', async () => {
    expect((await list('', BOUNDED_KEY)).realms).toBe('11 2 20')
    expect((await list('q=1', BOUNDED_KEY)).realms).toBe('11')
    const headers = { Authorization: `Bearer ${BOUNDED_KEY}` }
    const { body } = await service.ask('/credentials/summary', { headers })
    expect(body).toStrictEqual({
      Total: 3,
      States: { active: 3, expiring: 0, failing: 0, must_reconnect: 0 },
      Classes: {},
    })
  })
})

describe('GET /credentials/summary', () => {
  it('GET /credentials/summary counts all credentials by state', async () => {
    expect(await service.ask('/credentials/summary')).toMatchObject({
      status: 200,
      body: { Total: 6, States: { active: 6 } },
    })
    expect((await service.ask('/credentials/summary?state=active')).status).toBe(400)
  })
})

describe('a credential in a list', () => {
  it('a list shows the labels and the state of a credential, and the times of its grant and its next refresh', async () => {
    const { body } = await service.ask('/credentials?q=acme')
    const [item] = body['items'] as Record<string, unknown>[]
    expect(item).toMatchObject({
      Label: 'Acme <b> & Söhne',
      Tags: { plan: 'a:b,c', team: 'x y' },
      State: 'active',
      Attempts: 0,
    })
    const time = (member: string) => Date.parse(String(item?.[member]))
    expect(time('RefreshDueAt')).toBeGreaterThan(time('RefreshedAt'))
    expect(time('RefreshDueAt')).toBeLessThan(time('Expiry'))
    expect(time('IdleExpiry')).toBeGreaterThan(time('Expiry'))
    expect(item).not.toHaveProperty('NextTryAt')
  })
})
