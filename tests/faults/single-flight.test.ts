/**
 * Three token-services in separate processes share one Redis and have many concurrent callers. A proxy in front of the
 * token endpoint lets a test decide when the provider responds.
 */
import type { AccessTokenView } from '@integration-host/shared/contracts/credential'
import { changeRecord } from '@integration-host/shared/test-support/change-record'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type RefreshCalls, sandboxClient } from '../support/clients/sandbox.ts'
import { companyInfoUrl, connectCompany, consentByLink } from '../support/clients/user-actions.ts'
import { backend, personalities, startSystem, type System } from '../support/system.ts'
import {
  startTokenEndpointProxy,
  type TokenEndpointProxy,
} from '../support/fakes/token-endpoint-proxy.ts'

const CALLERS = 500
const COMPANIES = 1_000
const REPLICAS = 3
/** Each replica's limit for concurrent refreshes. Further refreshes wait. */
const REFRESHES_IN_FLIGHT = 32
/** Number of companies whose tokens stay valid while the credentials of the other companies are refreshed. */
const VALID_COMPANIES = 5

const onceGranted = { granted: 1, rejected: 0, reused: 0, maxConcurrent: 1 } satisfies RefreshCalls

describe.each(personalities)(
  'three token-services that are called at the same time, with the provider %s',
  (personality) => {
    let system: System
    let tokenEndpoint: TokenEndpointProxy
    let redis: Redis
    let replicas: readonly string[]
    let realm: string

    beforeAll(async () => {
      system = await startSystem(['sandbox-provider'], { personality })
      tokenEndpoint = await startTokenEndpointProxy(system.url('sandbox-provider'))
      redis = new Redis(backend('TEST_REDIS_URL'), { keyPrefix: system.redisKeyPrefix })
      const env = { DISCOVERY_URL: tokenEndpoint.discoveryUrl }
      system.start('token-service', env)
      system.start('accounting-gateway')
      const [, ...others] = await Promise.all([
        system.ready('token-service', 'accounting-gateway'),
        ...Array.from({ length: REPLICAS - 1 }, () => system.replica('token-service', env)),
      ])
      replicas = [system.url('token-service'), ...others.map(({ url }) => url)]
    })
    afterAll(async () => {
      redis.disconnect()
      await tokenEndpoint[Symbol.asyncDispose]()
      await system[Symbol.asyncDispose]()
    })

    let realms = 9_341_460_000
    beforeEach(async () => {
      realm = String((realms += 1))
      await connectCompany(system, realm)
    })
    afterEach(() => tokenEndpoint.resume())

    const nameOf = (one: string): string => `ACC-${one}`
    const fences = async (): Promise<number> => Number(await redis.get('credentials:fence'))

    async function requestToken(one: string, replica: number) {
      const response = await system.call(
        `${replicas[replica % REPLICAS]}/credentials/${nameOf(one)}/token`,
      )
      const view = (await response.json()) as AccessTokenView
      return { status: response.status, version: view.Version, token: view.Authenticator }
    }
    const requestByAllCallers = () =>
      Array.from({ length: CALLERS }, (_, caller) => requestToken(realm, caller))

    /** Sends one more call to each replica. Its response shows that the replica has accepted all earlier calls. */
    const untilAllAccepted = () =>
      Promise.all(
        replicas.map(async (url) =>
          (await system.call(`${url}/credentials/${nameOf(realm)}`)).json(),
        ),
      )

    /** Makes the access tokens of the companies expire and their proactive refreshes due. */
    async function expire(all: readonly string[]): Promise<void> {
      const now = Date.now()
      const Expiry = new Date(now).toISOString()
      await Promise.all(
        all.map((one) => changeRecord(redis, system.credentialKeys, nameOf(one), { Expiry })),
      )
      await redis.zadd('credentials:due', ...all.flatMap((one) => [now, nameOf(one)]))
    }

    async function expectOneToken(
      requests: ReturnType<typeof requestByAllCallers>,
      version: number,
    ): Promise<void> {
      const responses = await Promise.all(requests)
      const [first] = responses
      expect(responses.map((one) => `${one.status} ${one.version} ${one.token}`)).toEqual(
        Array(CALLERS).fill(`200 ${version} ${first?.token}`),
      )
      expect(await sandboxClient(system).accepts(realm, first?.token)).toBe(true)
    }

    it(`three token-services refresh a token only once if ${CALLERS} requests for the expired token arrive concurrently`, async () => {
      await expire([realm])
      await expectOneToken(requestByAllCallers(), 2)
      expect(await sandboxClient(system).calls(realm)).toEqual(onceGranted)
    })

    it('three token-services send the response of a slow provider to every caller, and do not compete for the lease', async () => {
      tokenEndpoint.pause()
      await expire([realm])
      const requests = requestByAllCallers()
      await eventually(() => expect(tokenEndpoint.inFlight()).toBe(1))
      await untilAllAccepted()
      expect(tokenEndpoint.inFlight()).toBe(1)
      tokenEndpoint.resume()
      await expectOneToken(requests, 2)
      expect((await sandboxClient(system).calls(realm)).granted).toBe(1)
      expect(await redis.exists(`lease:${nameOf(realm)}`)).toBe(0)
      console.log(`${CALLERS} callers while the provider was paused: 1 provider call`)
    })

    it('three token-services respond as soon as the token is stored, even if the lease of the refresh is never released', async () => {
      const name = nameOf(realm)
      const lease = `lease:${name}`
      const expiry = (await redis.hget(name, 'Expiry')) ?? ''
      // The test takes the role of the replica that refreshes: the test holds the lease and stores the token.
      await redis.set(lease, 'the test:1')
      await changeRecord(redis, system.credentialKeys, name, { Expiry: new Date().toISOString() })
      const before = await fences()
      let responded = 0
      const requests = requestByAllCallers().map((call) => call.finally(() => (responded += 1)))
      await untilAllAccepted()
      expect(responded).toBe(0)
      await changeRecord(redis, system.credentialKeys, name, { Expiry: expiry })
      await expectOneToken(requests, 1)
      expect(await redis.get(lease)).toBe('the test:1')
      expect(await fences()).toBe(before)
      expect((await sandboxClient(system).calls(realm)).granted).toBe(0)
    })

    it(`three token-services refresh ${COMPANIES} companies once each, and issue tokens for other companies at the same time`, async () => {
      const expired = Array.from({ length: COMPANIES }, (_, index) => String(9_341_470_000 + index))
      const valid = Array.from({ length: VALID_COMPANIES }, (_, index) =>
        String(9_341_480_000 + index),
      )
      await connectAll([...expired, ...valid])
      tokenEndpoint.takeMaxInFlight()

      tokenEndpoint.pause()
      await expire(expired)
      let responded = 0
      const requests = expired.map((one, index) =>
        requestToken(one, index).finally(() => (responded += 1)),
      )
      // Every replica has now reached its limit for concurrent refreshes. Each of these refreshes calls the provider,
      // or waits for the call of another replica.
      await eventually(() =>
        expect(tokenEndpoint.inFlight()).toBeGreaterThanOrEqual(REFRESHES_IN_FLIGHT),
      )
      const meanwhile = await Promise.all(
        valid.map(async (one) => (await system.call(companyInfoUrl(system, one))).status),
      )
      expect(meanwhile).toEqual(Array(VALID_COMPANIES).fill(200))
      expect(responded).toBe(0)
      tokenEndpoint.resume()

      const responses = await Promise.all(requests)
      expect(responses.map(({ status, version }) => `${status} ${version}`)).toEqual(
        Array(COMPANIES).fill('200 2'),
      )
      expect(new Set(responses.map(({ token }) => token)).size).toBe(COMPANIES)
      const calls = await sandboxClient(system).allCalls()
      expect(expired.map((one) => calls.get(one))).toEqual(expired.map(() => onceGranted))
      const maxInFlight = tokenEndpoint.takeMaxInFlight()
      expect(maxInFlight).toBeLessThanOrEqual(REPLICAS * REFRESHES_IN_FLIGHT)
      console.log(
        `${COMPANIES} companies at once: ${COMPANIES} provider calls, at most ${maxInFlight} at a time; ` +
          `${VALID_COMPANIES} gateway calls served while all of them were paused`,
      )
    }, 120_000)

    async function connectAll(all: readonly string[]): Promise<void> {
      const waiting = [...all]
      const connectSome = async (): Promise<void> => {
        for (let one = waiting.pop(); one !== undefined; one = waiting.pop()) {
          // A replica exchanges at most eight codes per second for browsers. This limit does not apply to
          // authorizations that a client has started with the service key, as here.
          const { follow } = await consentByLink(system, one)
          expect((await follow()).status).toBe(302)
        }
      }
      await Promise.all(Array.from({ length: 16 }, connectSome))
    }
  },
)
