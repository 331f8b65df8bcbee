/**
 * Tests that the audit log contains the reason that a caller gives for a refresh or a removal. The requests are sent
 * over HTTP, and the service uses the embedded adapters.
 */
import { AuditPage, auditStart, firstBreak } from '@integration-host/shared/contracts/audit'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
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
  await service.connect('1')
})
afterEach(() => closing.disposeAsync())

const PATH = '/credentials/ACC-1'
const refresh = (body: unknown) => service.ask(`${PATH}/refresh`, json(body))
const remove = (body: unknown) => service.ask(PATH, { ...json(body), method: 'DELETE' })

/** Resolves with the action and the reason of each audit entry, as soon as the audit log contains `count` entries. */
async function audited(count: number): Promise<(readonly [what: string, reason?: string])[]> {
  const { items } = await eventually(async () => {
    const page = AuditPage.parse((await service.ask('/audit?after=0')).body)
    expect(page.items).toHaveLength(count)
    return page
  })
  expect(firstBreak(auditStart, items)).toBeNull()
  return items.map(({ What, Reason }) => (Reason === undefined ? [What] : [What, Reason]))
}

describe('a company that is authorized again', () => {
  it('has a further entry `granted`, whose version is above 1, also after a fault and after a removal', async () => {
    await service.connect('1') // the company was connected before each test
    provider.revokeAll()
    expect((await refresh({})).status).toBe(424)
    await service.connect('1')
    expect((await remove({})).status).toBe(204)
    await service.connect('1')
    const { items } = await eventually(async () => {
      const page = AuditPage.parse((await service.ask('/audit?after=0')).body)
      expect(page.items).toHaveLength(6)
      return page
    })
    expect(items.map(({ What, Version }) => [What, Version])).toEqual([
      ['granted', 1],
      ['granted', 2],
      ['faulted', 2],
      ['granted', 3],
      ['removed', 3],
      ['granted', 4],
    ])
  })
})

describe('the reason of an action on a credential', () => {
  it('the audit log contains the reasons of a refresh and of a removal, and its hash chain is intact', async () => {
    expect((await refresh({ Reason: 'the provider is back' })).status).toBe(200)
    expect((await refresh({})).status).toBe(200)
    expect((await remove({ Reason: 'the customer has left' })).status).toBe(204)
    expect(await audited(4)).toEqual([
      ['granted'],
      ['refreshed', 'the provider is back'],
      ['refreshed'],
      ['removed', 'the customer has left'],
    ])
  })

  it('the audit log contains the reason of a refresh that the provider rejects', async () => {
    provider.revokeAll()
    expect((await refresh({ Reason: 'one more attempt' })).status).toBe(424)
    expect(await audited(2)).toEqual([['granted'], ['faulted', 'one more attempt']])
  })

  it('the audit entry of a removal without a body has no reason', async () => {
    expect((await service.ask(PATH, { method: 'DELETE' })).status).toBe(204)
    expect(await audited(2)).toEqual([['granted'], ['removed']])
  })

  it.each([
    ['501 characters', 'r'.repeat(501)],
    ['no character', ''],
    ['two lines', 'one\ntwo'],
    ['a character that changes the direction of text', 'left \u202e right'],
  ])(
    'a refresh or a removal whose reason has %s is rejected and changes nothing',
    async (_, Reason) => {
      const rejected = { status: 400, body: { code: 'invalid_request' } }
      const before = (await service.ask(PATH)).body
      expect(await refresh({ Reason })).toMatchObject(rejected)
      expect(await remove({ Reason })).toMatchObject(rejected)
      expect((await service.ask(PATH)).body).toStrictEqual(before)
    },
  )

  it('a removal rejects a body that is not JSON, and a body with unknown members', async () => {
    const plain = { method: 'DELETE', body: 'why', headers: { 'Content-Type': 'text/plain' } }
    expect((await service.ask(PATH, plain)).status).toBe(415)
    expect((await remove({ Because: 'why' })).status).toBe(400)
    expect((await service.ask(PATH)).status).toBe(200)
  })
})
