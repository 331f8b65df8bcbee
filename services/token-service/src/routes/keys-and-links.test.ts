/** Tests what a key of the key file may still do with what it has made, and what it sees of what others have made. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { digestOf } from '@integration-host/shared/access/key-list'
import type { Scope } from '@integration-host/shared/access/scope'
import { until } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, expect, it } from 'vitest'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import { startFileService, type TestService } from '../../test-support/service-fixture.ts'
import { PENDING_LABELS } from '../authorization/authorization-store.ts'

const REALM = '1'
const keyOf = (id: string): string => `${id}-`.padEnd(40, 'x')
const entryOf = (id: string, scopes: readonly Scope[]) => ({
  id,
  sha256: digestOf(keyOf(id)),
  scopes,
  realms: ['*'],
})
const entries = [
  entryOf('shop', ['credentials:manage']),
  entryOf('portal', ['credentials:manage']),
  entryOf('fills', ['credentials:manage']),
  entryOf('reads', ['credentials:manage', 'credentials:read']),
]

let provider: ScriptedProvider
let service: TestService
let file: string
const closing = new AsyncDisposableStack()
beforeAll(async () => {
  const folder = await mkdtemp(join(tmpdir(), 'keys-'))
  closing.defer(() => rm(folder, { recursive: true }))
  file = join(folder, 'keys.json')
  await writeFile(file, JSON.stringify(entries))
  provider = closing.use(await startScriptedProvider())
  service = await startFileService(closing, { provider, env: { SERVICE_KEYS_FILE: file } })
})
afterAll(() => closing.disposeAsync())

const call = (key: string, method: string, path: string, body?: object) =>
  fetch(service.url + path, {
    method,
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${keyOf(key)}` },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
const created = async <T>(response: Promise<Response>): Promise<T> => {
  const { status } = await response
  expect(status).toBe(201)
  return (await response).json() as Promise<T>
}
/** Connects the company of an authorization that a key has started, and returns the response of the callback. */
const callback = (url: string) => {
  const consent = new URL(url)
  const query = new URLSearchParams({
    code: provider.authorize(consent),
    realmId: REALM,
    state: consent.searchParams.get('state') ?? '',
  })
  return fetch(`${service.url}/callback?${query.toString()}`, { redirect: 'manual' })
}

it('without credentials:read, a change of a company shows the label of the request, and no label that another key has stored', async () => {
  const { url } = await created<{ url: string }>(
    call('portal', 'POST', '/authorizations', {
      realm: REALM,
      label: 'SECRET Ltd',
      tags: { owner: 'SECRET' },
    }),
  )
  expect((await callback(url)).status).toBe(302)
  for (const [method, path, body] of [
    ['POST', `/credentials/ACC-${REALM}/refresh`, {}],
    ['PATCH', `/credentials/ACC-${REALM}`, { Tags: { own: 'x' } }],
  ] as const) {
    const changed = await call('shop', method, path, body)
    expect(changed.status).toBe(200)
    expect(await changed.text()).not.toContain('SECRET')
    expect(await (await call('reads', method, path, body)).text()).toContain('SECRET')
  }
  const own = await call('shop', 'PATCH', `/credentials/ACC-${REALM}`, { Label: 'Own' })
  expect(await own.json()).toMatchObject({ Label: 'Own' })
})

it('without credentials:read, the list of connect links shows the labels of the own links only', async () => {
  await created(call('portal', 'POST', '/connect-links', { realm: REALM, label: 'SECRET Ltd' }))
  await created(call('shop', 'POST', '/connect-links', { realm: REALM, label: 'Own' }))
  const labels = async (key: string) => {
    const { items } = (await (await call(key, 'GET', '/connect-links')).json()) as {
      items: { label: string | null }[]
    }
    return new Set(items.map(({ label }) => label))
  }
  expect(await labels('shop')).toEqual(new Set([null, 'Own']))
  expect(await labels('reads')).toEqual(new Set(['SECRET Ltd', 'Own']))
})

it('one key has only its share of pending authorizations with a label, and gets 429 with Retry-After beyond it', async () => {
  const start = (key: string) =>
    call(key, 'POST', '/authorizations', { realm: REALM, label: 'x'.repeat(80) })
  for (let n = 0; n < PENDING_LABELS.perKey; n += 1) expect((await start('fills')).status).toBe(201)
  const rejected = await start('fills')
  expect([rejected.status, rejected.headers.get('Retry-After')]).toEqual([429, '60'])
  expect(await rejected.json()).toMatchObject({
    code: 'quota_exceeded',
    limit: PENDING_LABELS.perKey,
  })
  expect((await start('shop')).status).toBe(201)
  expect((await call('fills', 'POST', '/authorizations', { realm: REALM })).status).toBe(201)
})

it('the unused links of a key are counted, kept or withdrawn for its revocation', async () => {
  const create = async () =>
    (
      await created<{ url: string }>(call('fills', 'POST', '/connect-links', { realm: REALM }))
    ).url.replace(/^https?:\/\/[^/]+/, service.url)
  const status = async (url: string) => (await fetch(url)).status
  const kept = await create()
  expect(await (await call('shop', 'GET', '/keys/fills/open')).json()).toEqual({ ConnectLinks: 1 })
  await call('shop', 'POST', '/keys/fills/open/keep')
  const withdrawn = await create()
  const response = await call('shop', 'DELETE', '/keys/fills/open')
  expect([response.status, await response.json()]).toEqual([200, { ConnectLinks: 1 }])
  expect([await status(kept), await status(withdrawn)]).toEqual([200, 410])
})

it('the connect links and pending authorizations of a revoked key can no longer be used, those of other keys can', async () => {
  const link = (key: string) =>
    created<{ id: string; url: string }>(call(key, 'POST', '/connect-links', { realm: REALM }))
  const authorization = (key: string) =>
    created<{ url: string }>(call(key, 'POST', '/authorizations', { realm: REALM }))
  const [revoked, kept] = [await link('portal'), await link('shop')]
  const [ended, open] = [await authorization('portal'), await authorization('shop')]
  await writeFile(file, JSON.stringify(entries.filter(({ id }) => id !== 'portal')))
  await until(async () => (await call('portal', 'GET', '/connect-links')).status === 401)
  const page = ({ url }: { url: string }) => fetch(service.url + new URL(url).pathname)
  const press = ({ url }: { url: string }) =>
    fetch(service.url + new URL(url).pathname, { method: 'POST', redirect: 'manual' })
  expect([(await page(revoked)).status, (await press(revoked)).status]).toEqual([410, 410])
  expect([(await page(kept)).status, (await press(kept)).status]).toEqual([200, 303])
  const rejected = await callback(ended.url)
  expect([rejected.status, await rejected.json()]).toMatchObject([
    400,
    { code: 'authorization_invalid' },
  ])
  expect((await callback(open.url)).status).toBe(302)
})
