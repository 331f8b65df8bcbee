import {
  CREDENTIALS_EXCHANGE,
  CredentialEvent,
} from '@integration-host/shared/contracts/credential-event'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { connect } from 'amqplib'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { companyInfoUrl, connectCompany } from '../support/story-steps.ts'
import { backend, personalities, startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'
const NAME = `ACC-${REALM}`

describe.each(personalities)(
  'a realm at the provider %s, over Redis and RabbitMQ',
  (personality) => {
    let system: System
    const events: { key: string; body: string }[] = []
    let stopListening: () => Promise<void>

    beforeAll(async () => {
      system = await startSystem(['sandbox-provider', 'token-service', 'accounting-gateway'], {
        personality,
      })
      const connection = await connect(backend('TEST_AMQP_URL'))
      const channel = await connection.createChannel()
      const { queue } = await channel.assertQueue('', { exclusive: true })
      await channel.bindQueue(queue, system.amqpPrefix + CREDENTIALS_EXCHANGE, 'credential.*')
      await channel.consume(
        queue,
        (message) =>
          message && events.push({ key: message.fields.routingKey, body: String(message.content) }),
        { noAck: true },
      )
      stopListening = () => connection.close()
    })
    afterAll(async () => {
      await stopListening()
      await system[Symbol.asyncDispose]()
    })

    const sandbox = (path: string, method: string, body?: unknown): Promise<Response> =>
      fetch(`${system.url('sandbox-provider')}/sandbox/${path}`, {
        method,
        headers: { 'Content-Type': 'application/json' },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      })
    const credential = async () =>
      (await system.call(`${system.url('token-service')}/credentials/${NAME}`)).json() as Promise<
        Record<string, unknown>
      >

    it('is connected through the real redirects, and its credential stored encrypted', async () => {
      const finished = await connectCompany(system, REALM)
      expect(finished.status).toBe(302)
      expect(await credential()).toMatchObject({
        Name: NAME,
        Environment: REALM,
        Status: 'active',
        Version: 1,
      })

      const redis = new Redis(backend('TEST_REDIS_URL'))
      const stored = await redis.hgetall(system.redisKeyPrefix + NAME)
      redis.disconnect()
      expect(stored).toMatchObject({ Name: NAME, Environment: REALM })
      const token = (await (
        await system.call(`${system.url('token-service')}/credentials/${NAME}/token`)
      ).json()) as { Authenticator: string }
      expect(JSON.stringify(stored)).not.toContain(token.Authenticator)
      for (const field of ['Authenticator', 'RefreshToken', 'StoreA'])
        expect(stored[field]).toMatch(/^1\.k1\./)
    })

    it('cannot be taken over by a callback that names it for the grant of another company', async () => {
      const started = await fetch(`${system.url('token-service')}/authorize`, {
        redirect: 'manual',
      })
      const cookie = started.headers.getSetCookie().map((header) => header.split(';')[0])
      const consent = new URL(started.headers.get('Location') ?? '')
      consent.searchParams.set('sandbox_company', '666:Attacker')
      const granted = await fetch(consent, { redirect: 'manual' })
      const callback = new URL(granted.headers.get('Location') ?? '')
      callback.searchParams.set('realmId', REALM)
      const answer = await fetch(callback, {
        redirect: 'manual',
        headers: { Cookie: cookie.join('; ') },
      })
      expect([answer.status, await answer.json()]).toEqual([
        409,
        expect.objectContaining({ code: 'realm_mismatch' }),
      ])
      expect(await credential()).toMatchObject({ Version: 1, Status: 'active' })
    })

    it('is read through the gateway with the bearer added', async () => {
      const answer = await system.call(companyInfoUrl(system, REALM))
      expect(answer.status).toBe(200)
      expect(answer.headers.get('intuit_tid')).toBeTruthy()
      expect(await answer.json()).toMatchObject({
        QueryResponse: { CompanyInfo: [{ CompanyName: 'Test Company' }] },
      })
    })

    it('is refreshed first when its token has expired, once', async () => {
      await sandbox(`realms/${REALM}/expire`, 'POST')
      const answers = await Promise.all(
        Array.from({ length: 8 }, () => system.call(companyInfoUrl(system, REALM))),
      )
      expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(200))
      expect(await credential()).toMatchObject({ Version: 2 })
    })

    it('publishes each transition on the exchange, without any token', async () => {
      await eventually(() =>
        expect(events.map(({ key }) => key)).toEqual(['credential.stored', 'credential.refreshed']),
      )
      expect(events.map(({ body }) => CredentialEvent.parse(JSON.parse(body)).Version)).toEqual([
        1, 2,
      ])
      const token = (await (
        await system.call(`${system.url('token-service')}/credentials/${NAME}/token`)
      ).json()) as { Authenticator: string }
      expect(JSON.stringify(events)).not.toContain(token.Authenticator)
    })

    it('is refreshed by the routine that is registered again after a restart', async () => {
      // A token so short that it expires while no service is there to refresh it.
      await sandbox('settings', 'PUT', { accessTokenSeconds: 2 })
      await system.call(`${system.url('token-service')}/credentials/${NAME}/refresh`, {
        method: 'POST',
      })
      expect(await system.service('token-service').stop('SIGTERM')).toBe(0)
      await sandbox('settings', 'PUT', { accessTokenSeconds: 3_600 })
      system.start('token-service')
      await system.ready('token-service')
      // No caller requests the token.
      await eventually(async () =>
        expect(await credential()).toMatchObject({ Version: 4, Status: 'active' }),
      )
    })

    it('is faulted with the exact message when the provider has revoked it, and healed by a reconnect', async () => {
      await sandbox(`realms/${REALM}/revoke`, 'POST')
      const refused = await system.call(
        `${system.url('token-service')}/credentials/${NAME}/refresh`,
        { method: 'POST' },
      )
      expect([refused.status, await refused.json()]).toEqual([
        424,
        expect.objectContaining({ code: 'credential_faulted' }),
      ])
      expect(await credential()).toMatchObject({
        Status: 'faulted',
        Fault: {
          Code: 'invalid_grant',
          Message: expect.stringMatching(
            new RegExp(`^Couldn't refresh token for realm ${NAME}, .*invalid_grant`),
          ),
        },
      })
      await eventually(() => expect(events.at(-1)?.key).toBe('credential.faulted'))

      await connectCompany(system, REALM)
      expect(await credential()).toMatchObject({ Status: 'active' })
      expect((await system.call(companyInfoUrl(system, REALM))).status).toBe(200)
    })

    it('is revoked and forgotten on request', async () => {
      const removed = await system.call(`${system.url('token-service')}/credentials/${NAME}`, {
        method: 'DELETE',
      })
      expect(removed.status).toBe(204)
      await eventually(() =>
        expect(events.at(-1)).toMatchObject({
          key: 'credential.removed',
          body: expect.stringContaining('"revoked":true'),
        }),
      )
      await eventually(async () =>
        expect((await system.call(companyInfoUrl(system, REALM))).status).toBe(404),
      )
    })
  },
)
