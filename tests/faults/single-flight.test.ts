/**
 * Refreshes that everybody wants at the same time: three token-services, each its own process, on one Redis.
 * The token endpoint is behind a gate, so that a test says when the provider's answer comes.
 */
import type { AccessTokenView } from '@integration-host/shared/contracts/credential'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type RefreshCalls, sandboxOf } from '../support/sandbox-control.ts'
import { companyInfoUrl, connectCompany } from '../support/story-steps.ts'
import { backend, personalities, startSystem, type System } from '../support/system.ts'
import { startTokenGate, type TokenGate } from '../support/token-gate.ts'

const CALLERS = 500
const FLOOD = 1_000
const REPLICAS = 3
/** Of each replica: more refreshes wait for one of these to end. */
const REFRESHES_IN_HAND = 32
/** Companies whose tokens stay valid while others' are refreshed. */
const BYSTANDERS = 5

const onceGranted = { granted: 1, refused: 0, reused: 0, atOnce: 1 } satisfies RefreshCalls

describe.each(personalities)(
  'three token-services called at the same time, provider %s',
  (personality) => {
    let system: System
    let gate: TokenGate
    let redis: Redis
    let replicas: readonly string[]
    let realm: string

    beforeAll(async () => {
      system = await startSystem(['sandbox-provider'], { personality })
      gate = await startTokenGate(system.url('sandbox-provider'))
      redis = new Redis(backend('TEST_REDIS_URL'), { keyPrefix: system.redisKeyPrefix })
      const env = { DISCOVERY_URL: gate.discoveryUrl }
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
      await gate[Symbol.asyncDispose]()
      await system[Symbol.asyncDispose]()
    })

    let realms = 9_341_460_000
    beforeEach(async () => {
      realm = String((realms += 1))
      await connectCompany(system, realm)
    })
    afterEach(() => gate.release())

    const nameOf = (one: string): string => `ACC-${one}`
    const fences = async (): Promise<number> => Number(await redis.get('credentials:fence'))

    async function askToken(one: string, replica: number) {
      const answer = await system.call(
        `${replicas[replica % REPLICAS]}/credentials/${nameOf(one)}/token`,
      )
      const view = (await answer.json()) as AccessTokenView
      return { status: answer.status, version: view.Version, token: view.Authenticator }
    }
    const askByAll = () => Array.from({ length: CALLERS }, (_, caller) => askToken(realm, caller))

    /** Resolves when each replica has taken the calls made before: it answers a later one. */
    const untilAllAreTaken = () =>
      Promise.all(
        replicas.map(async (url) =>
          (await system.call(`${url}/credentials/${nameOf(realm)}`)).json(),
        ),
      )

    /** Their tokens have ended now, and their proactive refreshes are due. */
    async function expire(all: readonly string[]): Promise<void> {
      const now = Date.now()
      const batch = redis.pipeline()
      for (const one of all) batch.hset(nameOf(one), 'Expiry', new Date(now).toISOString())
      batch.zadd('credentials:due', ...all.flatMap((one) => [now, nameOf(one)]))
      await batch.exec()
    }

    async function expectOneToken(
      asked: ReturnType<typeof askByAll>,
      wanted: number,
    ): Promise<void> {
      const answers = await Promise.all(asked)
      const [first] = answers
      expect(answers.map(({ status, version, token }) => `${status} ${version} ${token}`)).toEqual(
        Array(CALLERS).fill(`200 ${wanted} ${first?.token}`),
      )
      expect(await sandboxOf(system).accepts(realm, first?.token)).toBe(true)
    }

    it(`spend one refresh on ${CALLERS} callers of a token that has ended`, async () => {
      await expire([realm])
      await expectOneToken(askByAll(), 2)
      expect(await sandboxOf(system).calls(realm)).toEqual(onceGranted)
    })

    it('give all of them the answer of a slow provider, and nobody queues for the lease', async () => {
      gate.hold()
      await expire([realm])
      const asked = askByAll()
      await eventually(() => expect(gate.inHand()).toBe(1))
      await untilAllAreTaken()
      expect(gate.inHand()).toBe(1)
      gate.release()
      await expectOneToken(asked, 2)
      expect((await sandboxOf(system).calls(realm)).granted).toBe(1)
      expect(await redis.exists(`lease:${nameOf(realm)}`)).toBe(0)
      console.log(`${CALLERS} callers, provider held: 1 provider call`)
    })

    it('answer as soon as the token is there, also when the lease is never released', async () => {
      const name = nameOf(realm)
      const lease = `lease:${name}`
      const expiry = (await redis.hget(name, 'Expiry')) ?? ''
      // The test is the replica that refreshes: it holds the lease and brings the token.
      await redis.set(lease, 'the test:1')
      await redis.hset(name, 'Expiry', new Date().toISOString())
      const before = await fences()
      let answered = 0
      const asked = askByAll().map((call) => call.finally(() => (answered += 1)))
      await untilAllAreTaken()
      expect(answered).toBe(0)
      await redis.hset(name, 'Expiry', expiry)
      await expectOneToken(asked, 1)
      expect(await redis.get(lease)).toBe('the test:1')
      expect(await fences()).toBe(before)
      expect((await sandboxOf(system).calls(realm)).granted).toBe(0)
    })

    it(`refresh ${FLOOD} companies whose tokens end together once each, a few at a time, and starve nobody`, async () => {
      const flood = Array.from({ length: FLOOD }, (_, index) => String(9_341_470_000 + index))
      const bystanders = Array.from({ length: BYSTANDERS }, (_, index) =>
        String(9_341_480_000 + index),
      )
      await connectAll([...flood, ...bystanders])
      gate.takeMostInHand()

      gate.hold()
      await expire(flood)
      let answered = 0
      const asked = flood.map((one, index) => askToken(one, index).finally(() => (answered += 1)))
      // Every replica's slots are taken, by calls or by watching what another replica calls for.
      await eventually(() => expect(gate.inHand()).toBeGreaterThanOrEqual(REFRESHES_IN_HAND))
      const meanwhile = await Promise.all(
        bystanders.map(async (one) => (await system.call(companyInfoUrl(system, one))).status),
      )
      expect(meanwhile).toEqual(Array(BYSTANDERS).fill(200))
      expect(answered).toBe(0)
      gate.release()

      const answers = await Promise.all(asked)
      expect(answers.map(({ status, version }) => `${status} ${version}`)).toEqual(
        Array(FLOOD).fill('200 2'),
      )
      expect(new Set(answers.map(({ token }) => token)).size).toBe(FLOOD)
      const calls = await sandboxOf(system).allCalls()
      expect(flood.map((one) => calls.get(one))).toEqual(flood.map(() => onceGranted))
      const most = gate.takeMostInHand()
      expect(most).toBeLessThanOrEqual(REPLICAS * REFRESHES_IN_HAND)
      console.log(
        `${FLOOD} companies at once: ${FLOOD} provider calls, at most ${most} at a time; ` +
          `${BYSTANDERS} gateway calls answered while all of them were held`,
      )
    }, 120_000)

    async function connectAll(all: readonly string[]): Promise<void> {
      const waiting = [...all]
      const connectSome = async (): Promise<void> => {
        for (let one = waiting.pop(); one !== undefined; one = waiting.pop())
          await connectCompany(system, one)
      }
      await Promise.all(Array.from({ length: 16 }, connectSome))
    }
  },
)
