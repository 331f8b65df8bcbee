import {
  CREDENTIALS_EXCHANGE,
  CredentialEvent,
} from '@integration-host/shared/contracts/credential'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { connect } from 'amqplib'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sandboxClient } from '../support/clients/sandbox.ts'
import {
  companyInfoUrl,
  connectCompany,
  consentInBrowser,
} from '../support/clients/user-actions.ts'
import { backend, personalities, startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'
const NAME = `ACC-${REALM}`

describe.each(personalities)(
  'a realm at the provider %s, with Redis and RabbitMQ',
  (personality) => {
    let system: System
    const events: { key: string; body: string }[] = []
    let stopConsuming: () => Promise<void>

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
      stopConsuming = () => connection.close()
    })
    afterAll(async () => {
      await stopConsuming()
      await system[Symbol.asyncDispose]()
    })

    const credential = async () =>
      (await system.call(`${system.url('token-service')}/credentials/${NAME}`)).json() as Promise<
        Record<string, unknown>
      >

    it('a company is connected through the redirects of a browser, and its credential is stored encrypted', async () => {
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

    it('a callback for one company with the grant of another company does not replace the stored credential', async () => {
      const { callback, follow } = await consentInBrowser(system, '666', 'Attacker')
      callback.searchParams.set('realmId', REALM)
      const response = await follow()
      expect([response.status, await response.json()]).toEqual([
        409,
        expect.objectContaining({ code: 'realm_mismatch' }),
      ])
      expect(await credential()).toMatchObject({ Version: 1, Status: 'active' })
    })

    it('the gateway adds the bearer token to a call that reads the company', async () => {
      const response = await system.call(companyInfoUrl(system, REALM))
      expect(response.status).toBe(200)
      expect(response.headers.get('intuit_tid')).toBeTruthy()
      expect(await response.json()).toMatchObject({
        QueryResponse: { CompanyInfo: [{ CompanyName: 'Test Company' }] },
      })
    })

    it('concurrent requests for an expired access token cause one refresh', async () => {
      await sandboxClient(system).expire(REALM)
      const responses = await Promise.all(
        Array.from({ length: 8 }, () => system.call(companyInfoUrl(system, REALM))),
      )
      expect(responses.map(({ status }) => status)).toEqual(Array(8).fill(200))
      expect(await credential()).toMatchObject({ Version: 2 })
    })

    it('each transition of a credential publishes an event that contains no token', async () => {
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

    it('after a restart, token-service refreshes a credential whose refresh became due while the service was down', async () => {
      // The token expires while no token-service runs.
      await sandboxClient(system).set({ accessTokenSeconds: 2 })
      await system.call(`${system.url('token-service')}/credentials/${NAME}/refresh`, {
        method: 'POST',
      })
      expect(await system.service('token-service').stop('SIGTERM')).toBe(0)
      await sandboxClient(system).set({ accessTokenSeconds: 3_600 })
      system.start('token-service')
      await system.ready('token-service')
      // No caller requests the token, so the refresh is proactive.
      await eventually(async () =>
        expect(await credential()).toMatchObject({ Version: 4, Status: 'active' }),
      )
    })

    it('a credential whose grant the provider revoked is faulted until the company is reconnected', async () => {
      await sandboxClient(system).revoke(REALM)
      const rejected = await system.call(
        `${system.url('token-service')}/credentials/${NAME}/refresh`,
        { method: 'POST' },
      )
      expect([rejected.status, await rejected.json()]).toEqual([
        424,
        expect.objectContaining({ code: 'credential_faulted' }),
      ])
      expect(await credential()).toMatchObject({
        Status: 'faulted',
        Fault: {
          // The strict provider has just rotated the refresh token. token-service has never sent the new token, so it
          // concludes from the rejection that another program has used the token. At Intuit, the last refresh returned
          // the same token again, so token-service itself has sent this token before.
          Code: personality === 'strict' ? 'used_elsewhere' : 'invalid_grant',
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

    it('on request, a credential is revoked at the provider and deleted', async () => {
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
