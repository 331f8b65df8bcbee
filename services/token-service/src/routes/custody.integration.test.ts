/** Tests of the audit log, of transfers and of key rotations over HTTP and real Redis. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type AuditPage, auditStart, firstBreak } from '@integration-host/shared/contracts/audit'
import type { CredentialStore } from '../credential/credential-store.ts'
import type {
  ExportDocument,
  ImportReport,
  KeyRotationProgress,
} from '@integration-host/shared/contracts/custody'
import {
  generateKeyRing,
  type KeyRing,
  parseKeyRing,
} from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { changeRecord, expiringIn } from '@integration-host/shared/test-support/change-record'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Installation, startInstallation } from '../../test-support/installation.ts'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import { json, type ServiceOptions, testKeys } from '../../test-support/service-fixture.ts'

const PASSPHRASE = 'correct horse battery staple'
const SECRET = { Passphrase: PASSPHRASE }
let provider: ScriptedProvider
let cleanup: AsyncDisposableStack

beforeEach(async () => {
  cleanup = new AsyncDisposableStack()
  provider = cleanup.use(await startScriptedProvider())
})
afterEach(() => cleanup.disposeAsync())

const install = (
  options: Partial<ServiceOptions> & { readonly prefix?: string } = {},
): Promise<Installation> => startInstallation(cleanup, { provider, ...options })

interface Answer<Body> {
  readonly status: number
  readonly body: Body
}

async function post(
  { service }: Installation,
  path: string,
  body: unknown,
): Promise<Answer<unknown>> {
  const answer = await service.call(path, json(body))
  return { status: answer.status, body: await answer.json() }
}
const expire = ({ redis, keys }: Installation, name: string): Promise<void> =>
  changeRecord(redis.redis, keys, name, expiringIn(-1_000))
const refreshes = () => provider.requests.filter(({ grant }) => grant === 'refresh_token').length
const credential = async ({ service }: Installation, name: string) =>
  (await service.ask(`/credentials/${name}`)).body

describe('the audit log', () => {
  const read = async ({ service }: Installation): Promise<AuditPage> =>
    (await (await service.call('/audit?after=0&limit=1000')).json()) as AuditPage

  it('a key that has used its audited actions of the day gets 429, and nothing is exported or removed', async () => {
    const here = await install()
    await here.service.connect('1')
    const absent = await here.service.call('/credentials/ACC-9', { method: 'DELETE' })
    expect(absent.status).toBe(404)
    const { redis, prefix } = here.redis
    const [used = ''] = await redis.keys(`${prefix}credentials:actions:*`)
    await redis.set(used.slice(prefix.length), '9999')
    const names = ['ACC-1', 'ACC-9']
    for (const { status, body } of [
      await post(here, '/exports', { Names: names, ...SECRET }),
      await post(here, '/exports', { Names: names, ...SECRET }),
    ])
      expect([status, body]).toEqual([429, expect.objectContaining({ code: 'daily_actions_used' })])
    expect(await credential(here, 'ACC-1')).toMatchObject({ State: 'active' })
    expect((await here.service.call('/credentials/ACC-1', { method: 'DELETE' })).status).toBe(204)
    expect((await here.service.call('/key-rotations', { method: 'POST' })).status).toBe(429)
  })

  it('the audit log records caller, action, credential, time and outcome of each operation in one hash chain', async () => {
    const here = await install()
    await here.service.connect('1')
    await here.service.call('/credentials/ACC-1/refresh', json({}))
    for (let n = 0; n < 20; n += 1) await here.service.call('/credentials/ACC-1/token')
    provider.revokeAll()
    await here.service.call('/credentials/ACC-1/refresh', json({}))
    await here.service.call('/callback', json({ RealmID: '2', Code: 'unknown-code' }))
    await here.service.call('/credentials/ACC-1', { method: 'DELETE' })
    const { items, head } = await eventually(async () => {
      const page = await read(here)
      expect(new Set(page.items.map(({ What }) => What)).size).toBe(5)
      return page
    })
    const told = items.map(({ What, Name, Version, Outcome }) => [What, Name, Version, Outcome])
    expect(told.filter(([what]) => what !== 'handed_out')).toEqual([
      ['granted', 'ACC-1', 1, 'ok'],
      ['refreshed', 'ACC-1', 2, 'ok'],
      ['faulted', 'ACC-1', 2, 'used_elsewhere'],
      ['granted', 'ACC-2', 0, 'code_exchange_failed'],
      ['removed', 'ACC-1', 2, 'ok'],
    ])
    const handedOut = items.filter(({ What }) => What === 'handed_out')
    expect(handedOut.reduce((sum, { Count = 0 }) => sum + Count, 0)).toBe(20)
    expect(new Set(items.map(({ Who }) => Who))).toEqual(
      new Set([expect.stringMatching(/^key [0-9a-f]{8}$/)]),
    )
    expect(firstBreak(auditStart, items)).toBeNull()
    expect(head).toEqual({ Seq: items.at(-1)?.Seq, Hash: items.at(-1)?.Hash })
  })

  it('if several replicas write concurrently, the audit log contains each entry once, in one hash chain', async () => {
    const keys = testKeys()
    const first = await install({ keys })
    const replicas = [
      first,
      await install({ keys, prefix: first.redis.prefix }),
      await install({ keys, prefix: first.redis.prefix }),
    ]
    const realms = Array.from({ length: 60 }, (_, n) => String(n))
    await Promise.all(realms.map((realm, n) => (replicas[n % 3] ?? first).service.connect(realm)))
    const { items } = await eventually(async () => {
      const page = await read(first)
      expect(page.items).toHaveLength(60)
      return page
    })
    expect(new Set(items.map(({ Name }) => Name)).size).toBe(60)
    expect(firstBreak(auditStart, items)).toBeNull()
  })

  it('the verification of the audit log fails if an entry was changed, removed or inserted', async () => {
    const here = await install()
    for (const realm of ['1', '2', '3']) await here.service.connect(realm)
    await eventually(async () => expect((await read(here)).items).toHaveLength(3))
    const [id, [, text = '']] = (
      await here.redis.redis.xrange('credentials:audit', '-', '+')
    )[1] as [string, string[]]
    await here.redis.redis.xdel('credentials:audit', id)
    const { items } = await read(here)
    expect(firstBreak(auditStart, items)?.reason).toContain('entry 2 is missing')
    const changed = { ...JSON.parse(text), Who: 'unknown' }
    expect(firstBreak(auditStart, [items[0], changed, items[1]] as never)?.reason).toContain(
      'changed',
    )
  })

  it('GET /audit returns the audit log page by page', async () => {
    const here = await install()
    for (const realm of ['1', '2', '3']) await here.service.connect(realm)
    await eventually(async () => expect((await read(here)).items).toHaveLength(3))
    const { body } = await here.service.ask('/audit?after=1&limit=1')
    expect((body['items'] as { Seq: number }[]).map(({ Seq }) => Seq)).toEqual([2])
    expect(body['head']).toMatchObject({ Seq: 3 })
    for (const query of [
      'after=-1',
      'after=x',
      'limit=0',
      'limit=1001',
      'before=0',
      'before=x',
      'name=1',
      'after=1&before=2',
      'after=1&name=ACC-1',
    ])
      expect((await here.service.ask(`/audit?${query}`)).status, query).toBe(400)
  })
})

describe('the transfer of a credential', () => {
  const exportFrom = (from: Installation, names: string[], secret: object = SECRET) =>
    post(from, '/exports', { Names: names, ...secret }) as Promise<Answer<ExportDocument>>
  const importTo = (to: Installation, document: unknown, more: object = SECRET) =>
    post(to, '/imports', { Document: document, ...more }) as Promise<Answer<ImportReport>>

  it('after an export and an import, the target installation refreshes the credential, and the source no longer does', async () => {
    const source = await install()
    const target = await install()
    await source.service.connect('1')
    await source.service.call('/credentials/ACC-1/refresh', json({}))
    const token = (await source.service.ask('/credentials/ACC-1/token')).body['Authenticator']
    const exported = await exportFrom(source, ['ACC-1'])
    expect(exported.status).toBe(200)
    expect(JSON.stringify(exported.body)).not.toContain(token)
    expect(await importTo(target, exported.body)).toEqual({
      status: 200,
      body: { imported: [{ Name: 'ACC-1', Version: 3 }], refused: [] },
    })
    expect((await target.service.ask('/credentials/ACC-1/token')).body['Authenticator']).toBe(token)
    const refreshed = await target.service.ask('/credentials/ACC-1/refresh', json({}))
    expect(refreshed).toMatchObject({ status: 200, body: { Version: 4, Status: 'active' } })
    // The installation that exported the credential issues the access token until the token expires, and never sends
    // the refresh token again.
    const before = refreshes()
    expect((await source.service.ask('/credentials/ACC-1/token')).status).toBe(200)
    await expire(source, 'ACC-1')
    for (const answer of [
      await source.service.ask('/credentials/ACC-1/token'),
      await source.service.ask('/credentials/ACC-1/refresh', json({})),
    ])
      expect(answer).toMatchObject({ status: 424, body: { Fault: { Code: 'transferred' } } })
    expect(refreshes()).toBe(before)
    expect(await credential(source, 'ACC-1')).toMatchObject({ Status: 'faulted', Version: 2 })
  })

  it('an export can be imported back into the source installation after a refresh at the target', async () => {
    const [source, target] = [await install(), await install()]
    const Key = Buffer.alloc(32, 7).toString('base64')
    await source.service.connect('1')
    await importTo(target, (await exportFrom(source, ['ACC-1'], { Key })).body, { Key })
    await target.service.call('/credentials/ACC-1/refresh', json({}))
    const back = await exportFrom(target, ['ACC-1'], { Key })
    expect((await importTo(source, back.body, { Key })).body.imported).toEqual([
      { Name: 'ACC-1', Version: 4 },
    ])
    expect(await credential(source, 'ACC-1')).toMatchObject({ Status: 'active' })
    expect((await source.service.ask('/credentials/ACC-1/refresh', json({}))).status).toBe(200)
  })

  it('an export whose response was lost can be repeated', async () => {
    const [source, target] = [await install(), await install()]
    await source.service.connect('1')
    await exportFrom(source, ['ACC-1'])
    const again = await exportFrom(source, ['ACC-1'])
    expect((await importTo(target, again.body)).body.imported).toHaveLength(1)
    expect((await target.service.ask('/credentials/ACC-1/refresh', json({}))).status).toBe(200)
  })

  it('an export of several names exports no credential if one name is unknown', async () => {
    const source = await install()
    await source.service.connect('1')
    expect((await exportFrom(source, ['ACC-1', 'ACC-2'])).status).toBe(404)
    expect(await credential(source, 'ACC-1')).toMatchObject({ Status: 'active' })
  })

  it('an export first completes a refresh whose outcome is unknown', async () => {
    const source = await install()
    await source.service.connect('1')
    const acquired = await source.redis.store.acquire('ACC-1', 'a process that died', 50)
    if (acquired.kind !== 'acquired') throw new Error('the lease must be free')
    await source.redis.store.recordIntent(acquired.leased.lease, 0)
    expect((await exportFrom(source, ['ACC-1'])).status).toBe(200)
    expect(refreshes()).toBe(1)
    expect(await credential(source, 'ACC-1')).toMatchObject({
      Version: 2,
      Fault: { Code: 'transferred' },
    })
  })

  const Key = Buffer.alloc(32).toString('base64')
  it.each<[string, object, ((document: ExportDocument) => unknown)?]>([
    ['another passphrase', { Passphrase: 'another passphrase' }],
    ['a key instead of the passphrase', { Key }],
    ['a passphrase and a key', { Passphrase: PASSPHRASE, Key }],
    ['neither passphrase nor key', {}],
    ['changed names', SECRET, (document) => ({ ...document, Names: ['ACC-2'] })],
    [
      'a changed byte of the ciphertext',
      SECRET,
      (document) => ({ ...document, Ciphertext: `AAAA${document.Ciphertext.slice(4)}` }),
    ],
    ['a truncated ciphertext', SECRET, (document) => ({ ...document, Ciphertext: 'AAAA' })],
    [
      'an excessive scrypt cost',
      SECRET,
      (document) => ({ ...document, Kdf: { ...document.Kdf, N: 2 ** 30 } }),
    ],
    ['a string instead of a document', SECRET, () => 'text'],
  ])('an import with %s is rejected, and stores nothing', async (_, secret, change) => {
    const [source, target] = [await install(), await install()]
    await source.service.connect('1')
    const { body } = await exportFrom(source, ['ACC-1'])
    expect(await importTo(target, change?.(body) ?? body, secret)).toMatchObject({
      status: 400,
      body: { code: 'invalid_request' },
    })
    expect((await target.service.ask('/credentials/ACC-1')).status).toBe(404)
  })

  it('a grant that was exported is not revoked when the exporting installation removes its credential', async () => {
    const [source, target] = [await install(), await install()]
    await source.service.connect('1')
    await importTo(target, (await exportFrom(source, ['ACC-1'])).body)
    const answer = await source.service.call('/credentials/ACC-1', { method: 'DELETE' })
    expect(answer.status).toBe(204)
    expect(provider.revocations).toEqual([])
    expect((await target.service.ask('/credentials/ACC-1/refresh', json({}))).status).toBe(200)
  })

  it('an import does not overwrite a usable credential or a newer version of the same grant', async () => {
    const [source, target] = [await install(), await install()]
    await source.service.connect('1')
    const { body: old } = await exportFrom(source, ['ACC-1'])
    await importTo(target, old)
    const usableHere = await importTo(target, old)
    expect(usableHere.body.refused).toEqual([{ Name: 'ACC-1', Reason: 'version 2 is usable here' }])
    await exportFrom(target, ['ACC-1'])
    const older = await importTo(target, old)
    expect(older.body.refused[0]?.Reason).toContain('the document has 1')
    const forced = await importTo(target, old, { ...SECRET, Overwrite: true })
    expect(forced.body.imported).toEqual([{ Name: 'ACC-1', Version: 3 }])
  })
})

describe('a rotation of the encryption keys', () => {
  const entry = (id: string) => generateKeyRing().reveal().replace('k1', id)
  const ring = (...entries: string[]): KeyRing => parseKeyRing(new Secret(entries.join(',')))
  const rotate = async ({ service }: Installation): Promise<KeyRotationProgress[]> => {
    const answer = await service.call('/key-rotations', { method: 'POST' })
    expect(answer.headers.get('content-type')).toBe('application/x-ndjson')
    const lines = (await answer.text()).trimEnd().split('\n')
    return lines.map((line) => JSON.parse(line) as KeyRotationProgress)
  }
  const [old, fresh] = [entry('old'), entry('fresh')]
  const realms = Array.from({ length: 30 }, (_, n) => String(n))

  async function installOld(): Promise<Installation> {
    const before = await install({ keys: ring(old) })
    for (const realm of realms) await before.service.connect(realm)
    await before.service.call('/credentials/ACC-0/refresh', json({}))
    return before
  }

  const check = async ({ service }: Installation, query = '') =>
    (await service.ask(`/key-check${query}`)).body

  it('a key check decrypts every record, page by page, and changes no record', async () => {
    const before = await installOld()
    const { prefix } = before.redis
    expect(await check(before)).toEqual({ Checked: 30, Refused: [], next_cursor: null })
    const stored = await before.redis.redis.hgetall('ACC-3')
    await before.redis.redis.hset('ACC-3', { RefreshToken: stored['Authenticator'] ?? '' })
    const after = await install({ keys: ring(fresh, old), prefix })
    expect(await check(after)).toEqual({ Checked: 30, Refused: ['ACC-3'], next_cursor: null })
    const first = await check(after, '?limit=20')
    expect(first).toMatchObject({ Checked: 20, next_cursor: expect.stringMatching(/^ACC-/) })
    const rest = await check(after, `?limit=20&cursor=${String(first['next_cursor'])}`)
    expect(rest).toMatchObject({ Checked: 10, next_cursor: null })
    expect([first, rest].flatMap((page) => page['Refused'])).toEqual(['ACC-3'])
    expect(await after.redis.redis.hget('ACC-1', 'RefreshToken')).toMatch(/^1\.old\./)
    expect((await after.service.ask('/key-check?limit=501')).status).toBe(400)
  })

  it('a key rotation re-encrypts every record while tokens are issued and refreshed, and retires the old key', async () => {
    const before = await installOld()
    const { prefix } = before.redis
    const after = await install({ keys: ring(fresh, old), prefix })
    const statuses: number[] = []
    const running = rotate(after)
    for (let round = 0; round < 5; round += 1) {
      const calls = realms.map((realm) =>
        round === 2
          ? after.service.ask(`/credentials/ACC-${realm}/refresh`, json({}))
          : after.service.ask(`/credentials/ACC-${realm}/token`),
      )
      for (const { status } of await Promise.all(calls)) statuses.push(status)
    }
    const last = (await running).at(-1)
    expect(new Set(statuses)).toEqual(new Set([200]))
    expect(last).toMatchObject({
      ActiveKey: 'fresh',
      Total: 30,
      Refused: 0,
      IsFinished: true,
      RetiredKeys: ['old'],
    })
    expect((last?.Resealed ?? 0) + (last?.Current ?? 0)).toBe(30)
    for (const realm of realms) {
      const fields = await after.redis.redis.hgetall(`ACC-${realm}`)
      for (const field of ['Authenticator', 'RefreshToken', 'StoreA', 'Previous'])
        if (fields[field] !== '') expect(fields[field], `${realm} ${field}`).toMatch(/^1\.fresh\./)
    }
    expect(await rotate(after)).toMatchObject([{ Resealed: 0, Current: 30, RetiredKeys: [] }])
    const alone = await install({ keys: ring(fresh), prefix })
    expect((await alone.service.ask('/credentials/ACC-0/token')).status).toBe(200)
    expect((await alone.service.ask('/credentials/ACC-7/refresh', json({}))).status).toBe(200)
  })

  it('a key rotation also re-encrypts records that another replica writes with the old key during the rotation', async () => {
    const before = await installOld()
    const { prefix } = before.redis
    const after = await install({ keys: ring(fresh, old), prefix })
    let isFirst = true
    const late = new Proxy(after.redis.store, {
      get:
        (target, method: keyof CredentialStore) =>
        async (...args: never[]) => {
          const answer = await (target[method] as (...given: never[]) => unknown)(...args)
          if (method === 'reseal' && isFirst) {
            isFirst = false
            await before.service.call('/credentials/ACC-0/refresh', json({}))
          }
          return answer
        },
    })
    const rotating = await install({ keys: ring(fresh, old), prefix, store: late })
    expect((await rotate(rotating)).at(-1)).toMatchObject({ Refused: 0, RetiredKeys: ['old'] })
    const alone = await install({ keys: ring(fresh), prefix })
    expect((await alone.service.ask('/credentials/ACC-0/refresh', json({}))).status).toBe(200)
  })

  it('a key rotation reports a record that cannot be decrypted, and does not retire the old key', async () => {
    const before = await installOld()
    const { prefix, redis } = before.redis
    await redis.hset('ACC-3', 'StoreA', (await redis.hget('ACC-4', 'StoreA')) ?? '')
    const record = await redis.hgetall('ACC-3')
    const after = await install({ keys: ring(fresh, old), prefix })
    expect((await rotate(after)).at(-1)).toMatchObject({
      Resealed: 29,
      Refused: 1,
      FirstRefused: ['ACC-3'],
      RetiredKeys: [],
    })
    expect(await redis.hgetall('ACC-3')).toEqual(record)
    expect(Object.keys(await redis.hgetall('credentials:canary')).toSorted()).toEqual([
      'fresh',
      'old',
    ])
  })
})

describe('a grant that the provider will end', () => {
  const DAY_SECONDS = 86_400

  it('a credential shows when the provider ends its grant, and notices are published 90, 30 and 7 days before the end', async () => {
    const here = await install()
    const days = [400, 90, 89, 30, 29, 7, 6]
    for (const left of days)
      provider.script({
        members: { x_refresh_token_hard_expires_in: left * DAY_SECONDS - 60 },
      })
    await here.service.connect('1')
    const expiring: number[] = []
    for (const left of days.slice(1)) {
      await here.service.call('/credentials/ACC-1/refresh', json({}))
      const noticed = await here.redis.redis.hget('ACC-1', 'ExpiryNotice')
      if (expiring.at(-1) !== Number(noticed)) expiring.push(Number(noticed))
      expect((await credential(here, 'ACC-1'))['HardExpiry']).toEqual(expect.any(String))
      expect(left).toBeGreaterThan(0)
    }
    expect(expiring).toEqual([90, 30, 7])
    const { items } = await eventually(async () => {
      const page = (await here.service.ask('/audit?after=0')).body as unknown as AuditPage
      expect(page.items.filter(({ What }) => What === 'refreshed')).toHaveLength(6)
      return page
    })
    expect(items.filter(({ What }) => What === 'expiring').map(({ Outcome }) => Outcome)).toEqual([
      '90 days',
      '30 days',
      '7 days',
    ])
  })

  it.each([
    ['hard_expired', 'HardExpiry'],
    ['idle_expired', 'IdleExpiry'],
  ])(
    'after the provider has ended a grant, the credential of the grant gets the fault %s',
    async (code, field) => {
      const here = await install()
      await here.service.connect('1')
      await changeRecord(here.redis.redis, here.keys, 'ACC-1', {
        [field]: new Date(Date.now() - 1_000).toISOString(),
      })
      provider.revokeAll()
      expect(await here.service.ask('/credentials/ACC-1/refresh', json({}))).toMatchObject({
        status: 424,
        body: { Fault: { Code: code, Remedy: expect.stringContaining('Reconnect') } },
      })
    },
  )
})
