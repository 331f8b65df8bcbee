/**
 * Tests of labels and tags over HTTP with the embedded adapters: labels from an authorization, and labels that a PATCH
 * changes.
 */
import type { AuditPage } from '@integration-host/shared/contracts/audit'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import * as browser from '../../test-support/browser.ts'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import { json, startFileService, type TestService } from '../../test-support/service-fixture.ts'

let provider: ScriptedProvider
let service: TestService
let closing: AsyncDisposableStack

beforeEach(async () => {
  closing = new AsyncDisposableStack()
  provider = closing.use(await startScriptedProvider())
  service = await startFileService(closing, { provider })
})
afterEach(() => closing.disposeAsync())

const patch = (body: unknown, headers: Record<string, string> = {}): RequestInit => ({
  method: 'PATCH',
  headers: { 'Content-Type': 'application/json', ...headers },
  body: JSON.stringify(body),
})
const PATH = '/credentials/ACC-1'
const authorize = (body: object) => service.ask('/authorizations', json(body))

/** Completes an authorization with `body`, and resolves with the credential of realm 1. */
async function connected(body: object): Promise<Record<string, unknown>> {
  const { body: started } = await authorize(body)
  const url = new URL(String(started['url']))
  const code = provider.authorize(url)
  await browser.callBack(service.url, { code, realmId: '1', state: String(started['state']) })
  return (await service.ask(PATH)).body
}

describe('the labels of an authorization', () => {
  it('a credential gets the labels of its authorization, and a reconnect without labels keeps them', async () => {
    const labels = { Label: 'Acme <script>', Tags: { customer: '7' } }
    const given = { label: labels.Label, tags: labels.Tags }
    expect(await connected(given)).toMatchObject({ ...labels, Version: 1 })
    expect(await connected({ realm: '1' })).toMatchObject({ ...labels, Version: 2 })
    expect(await connected({ label: 'New' })).toMatchObject({ Label: 'New', Tags: labels.Tags })
  })

  it('the state is short enough for a URL even if the labels have their maximum size', async () => {
    const tags = Object.fromEntries(
      Array.from({ length: 10 }, (_, index) => [`${index}`.padEnd(64, 'n'), '語'.repeat(256)]),
    )
    const { status, body } = await authorize({ label: '社'.repeat(100), tags })
    expect(status).toBe(201)
    expect(String(body['url']).length).toBeLessThan(1_200)
    expect(await connected({ tags })).toMatchObject({ Tags: tags })
  })

  it.each([
    ['a control character', { label: 'Acme\u0007' }],
    ['eleven tags', { tags: Object.fromEntries(Array.from('abcdefghijk', (key) => [key, ''])) }],
    ['tags in a list', { tags: ['a'] }],
  ])('an authorization whose labels have %s is rejected with 400', async (_, body) => {
    expect(await authorize(body)).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
  })
})

describe('PATCH /credentials/{name}', () => {
  beforeEach(async () => void (await service.connect('1')))

  it('PATCH /credentials/{name} changes only the members in its body, keeps the version, and is audited with its caller', async () => {
    const first = await service.ask(PATH, patch({ Label: 'Acme', Tags: { a: 'b' } }))
    expect(first).toMatchObject({
      status: 200,
      body: { Label: 'Acme', Tags: { a: 'b' }, Version: 1, State: 'active', Attempts: 0 },
    })
    await service.ask(PATH, patch({ Tags: { c: 'd' } }))
    expect((await service.ask(PATH)).body).toMatchObject({ Label: 'Acme', Tags: { c: 'd' } })
    await service.ask(PATH, patch({ Label: null, Tags: null }))
    const { body } = await service.ask(PATH)
    expect(body).not.toHaveProperty('Label')
    expect(body).not.toHaveProperty('Tags')
    await eventually(async () => {
      const { items } = (await service.ask('/audit')).body as unknown as AuditPage
      const changes = items.filter(({ What }) => What === 'labelled')
      expect(new Set(changes.map(({ Outcome }) => Outcome))).toEqual(
        new Set(['label, tags', 'tags']),
      )
      expect(changes.reduce((sum, { Count = 0 }) => sum + Count, 0)).toBe(3)
    })
  })

  it('changes of labels share one audit entry for each second, caller, company and outcome', async () => {
    const count = 60
    // Together, so that they take no longer than a few seconds.
    await Promise.all(
      Array.from({ length: count }, (_, n) =>
        service.ask(PATH, patch({ Label: `Acme ${n}`, Tags: null })),
      ),
    )
    await eventually(async () => {
      const { items } = (await service.ask('/audit')).body as unknown as AuditPage
      const changes = items.filter(({ What }) => What === 'labelled')
      expect(changes.reduce((sum, { Count = 0 }) => sum + Count, 0)).toBe(count)
      expect(changes.length).toBeLessThan(count / 2)
    })
  })

  it.each([
    {},
    { Label: 7 },
    { Label: 'a\u2066b' },
    { Tags: { 'a:b': 'c' } },
    { Tags: [] },
    { label: 'lower case' },
    null,
  ])('PATCH /credentials/{name} responds 400 to the body %j and changes nothing', async (body) => {
    await service.ask(PATH, patch({ Label: 'Acme' }))
    expect((await service.ask(PATH, patch(body))).status).toBe(400)
    expect((await service.ask(PATH)).body).toMatchObject({ Label: 'Acme' })
  })

  it('PATCH /credentials/{name} responds 404 for an unknown credential and 415 for another content type', async () => {
    expect((await service.ask('/credentials/ACC-2', patch({ Label: 'A' }))).body).toMatchObject({
      code: 'credential_not_found',
    })
    const plain = patch({ Label: 'A' }, { 'Content-Type': 'text/plain' })
    expect((await service.ask(PATH, plain)).status).toBe(415)
  })
})

describe('If-Match on the actions of a credential', () => {
  beforeEach(async () => {
    await service.connect('1')
    await service.connect('1') // This connection creates version 2.
  })
  const withVersion = (init: RequestInit, version: string): RequestInit => ({
    ...init,
    headers: { ...(init.headers as Record<string, string>), 'If-Match': version },
  })
  const actions: readonly (readonly [string, string, RequestInit])[] = [
    ['PATCH', PATH, patch({ Label: 'Acme' })],
    ['POST refresh', `${PATH}/refresh`, json({})],
    ['DELETE', PATH, { method: 'DELETE' }],
  ]

  it.each(actions)(
    'the request %s fails and changes nothing if If-Match contains another version than the stored one',
    async (_, path, init) => {
      const before = (await service.ask(PATH)).body
      const sent = provider.requests.length
      expect(await service.ask(path, withVersion(init, '"1"'))).toMatchObject({
        status: 412,
        body: { code: 'version_moved', Version: 2 },
      })
      expect((await service.ask(PATH)).body).toStrictEqual(before)
      expect(provider.requests.length).toBe(sent)
    },
  )

  it.each(actions)(
    'the request %s succeeds if If-Match contains the stored version',
    async (_, path, init) => {
      expect((await service.ask(path, withVersion(init, '"2"'))).status).toBeLessThan(300)
    },
  )

  it.each(['2', 'W/"2"', '*', '"2", "3"', '"two"'])(
    'the If-Match value %s is rejected',
    async (value) => {
      const init = withVersion(patch({ Label: 'Acme' }), value)
      expect((await service.ask(PATH, init)).status).toBe(400)
    },
  )
})
