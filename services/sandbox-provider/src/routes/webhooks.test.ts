import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { readConfig } from '../config.ts'
import {
  CLIENT_ID,
  CLIENT_SECRET,
  type ProviderFixture,
  REALM,
  startProvider,
} from '../../test-support/provider-fixture.ts'
import {
  startWebhookTarget,
  VERIFIER_TOKEN,
  type WebhookTarget,
} from '../../test-support/webhook-target.ts'

describe('the webhooks of the sandbox provider', () => {
  let target: WebhookTarget
  let provider: ProviderFixture

  beforeEach(async () => {
    target = await startWebhookTarget()
    provider = await startProvider({
      WEBHOOK_URL: target.url,
      WEBHOOK_VERIFIER_TOKENS: `${VERIFIER_TOKEN},an-older-verifier-token`,
    })
  })
  afterEach(async () => {
    await provider[Symbol.asyncDispose]()
    await target[Symbol.asyncDispose]()
  })
  const changes = (): readonly string[] => target.deliveries.flatMap((delivery) => delivery.changes)

  it('the sandbox sends a webhook for each object that an application creates, updates or deletes', async () => {
    const { access_token: token } = await provider.tokens()
    const post = async (query: string, body: object): Promise<Record<string, string>> => {
      const response = await provider.api(
        `/v3/company/${REALM}/bill${query}`,
        token,
        postJson(body),
      )
      return ((await response.json()) as { Bill: Record<string, string> }).Bill
    }
    const arrived = (operation: string, id: string | undefined) =>
      eventually(() => expect(changes().at(-1)).toBe(`${REALM}/bill/${id}/${operation}`))
    const { Id, SyncToken } = await post('?requestid=r1', { PrivateNote: 'Amy' })
    await arrived('created', Id)
    // The repeated request changes nothing, so it causes no webhook.
    await post('?requestid=r1', { PrivateNote: 'Amy' })
    const updated = await post('', { Id, SyncToken, PrivateNote: 'Amy Lee' })
    await arrived('updated', Id)
    await post('?operation=delete', { Id, SyncToken: updated['SyncToken'] })
    await arrived('deleted', Id)
    expect(changes()).toHaveLength(3)
    expect(target.deliveries.every(({ isSigned }) => isSigned)).toBe(true)
  })

  it('a control route of the sandbox reports a single change or many changes by webhook', async () => {
    const one = { realm: REALM, entity: 'Customer', operation: 'merge', id: '5', deletedId: '6' }
    expect((await provider.sandbox('POST', 'webhooks', one)).status).toBe(202)
    await eventually(() => expect(changes()).toEqual([`${REALM}/customer/5/merged`]))
    const burst = { realm: REALM, id: '100', count: 250 }
    expect((await provider.sandbox('POST', 'webhooks', burst)).status).toBe(202)
    await eventually(() => expect(changes()).toHaveLength(251))
    expect(changes()).toContain(`${REALM}/invoice/349/updated`)
  })

  it('the webhook settings of the sandbox can be read and changed, and a reset restores their defaults', async () => {
    const changed = await provider.sandbox('PUT', 'webhooks', { format: 'legacy', copies: 2 })
    expect(await changed.json()).toMatchObject({ settings: { format: 'legacy', copies: 2 } })
    await provider.sandbox('POST', 'webhooks', { realm: REALM })
    await eventually(() => expect(changes()).toEqual(Array(2).fill(`${REALM}/Invoice/1/Update`)))
    await provider.sandbox('POST', 'reset')
    expect(await (await provider.sandbox('GET', 'webhooks')).json()).toMatchObject({
      settings: { format: 'cloudevents', copies: 1 },
      counts: { changes: 0 },
    })
  })

  it('a control route of the sandbox repeats all failed webhooks immediately, before their scheduled time', async () => {
    target.respond(503)
    await provider.sandbox('POST', 'webhooks', { realm: REALM })
    await eventually(async () =>
      expect(await (await provider.sandbox('GET', 'webhooks')).json()).toMatchObject({
        counts: { waiting: 1, attempts: 1, statuses: { 503: 1 } },
      }),
    )
    target.respond(200)
    const retried = await provider.sandbox('POST', 'webhooks/retry')
    expect(await retried.json()).toEqual({ retried: 1 })
    await eventually(() => expect(changes()).toHaveLength(2))
  })

  it.each<[body: object, fault: string]>([
    [{}, 'no realm'],
    [{ realm: 'a/b' }, 'a realm that is not one'],
    [{ realm: REALM, entity: 'Spaceship' }, 'an unknown entity'],
    [{ realm: REALM, count: 10_001 }, 'too large a burst'],
    [{ realm: REALM, id: 'a', count: 2 }, 'a burst whose id is not a number'],
  ])('the webhook routes of the sandbox reject a request with %2$s', async (body) => {
    expect((await provider.sandbox('POST', 'webhooks', body)).status).toBe(400)
    expect(await (await provider.sandbox('GET', 'webhooks')).json()).toMatchObject({
      counts: { changes: 0 },
    })
  })

  it.each([[{}], [{ copies: 0 }], [{ dropPercent: 101 }], [{ url: 'http://127.0.0.1' }]])(
    'the webhook routes of the sandbox reject the settings %j',
    async (settings) => {
      expect((await provider.sandbox('PUT', 'webhooks', settings)).status).toBe(400)
    },
  )

  it('without WEBHOOK_URL, the webhook routes of the sandbox respond 404, and applications can still change objects', async () => {
    await using without = await startProvider()
    expect((await without.sandbox('POST', 'webhooks', { realm: REALM })).status).toBe(404)
    expect((await without.sandbox('GET', 'webhooks')).status).toBe(404)
    const { access_token: token } = await without.tokens()
    const created = await without.api(`/v3/company/${REALM}/invoice`, token, {
      method: 'POST',
      body: '{}',
    })
    expect(created.status).toBe(200)
  })

  it('the sandbox does not start if WEBHOOK_URL is set without a verifier token', () => {
    const env = { CLIENT_ID, CLIENT_SECRET, WEBHOOK_URL: 'http://127.0.0.1:7222/webhooks/intuit' }
    expect(() => readConfig(env)).toThrow('WEBHOOK_VERIFIER_TOKENS: is missing')
  })
})
