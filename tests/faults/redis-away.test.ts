/**
 * Redis leaves in the middle of a refresh: at each write of the protocol, before Redis has done it and after,
 * and while the provider is working. It is out of reach, or silent, or killed and started again from its
 * append-only file. The provider rotates each time and takes no token twice, so a grant survives only if
 * nothing is spent in vain and nothing received is lost.
 * The three sweeps run at the same time, each with a provider and a token-service of its own.
 */
import type { AccessTokenView, CredentialView } from '@integration-host/shared/contracts/credential'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { startRelay } from '@integration-host/shared/test-support/relay'
import { type ChannelModel, connect } from 'amqplib'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { credentialsOf, type Told } from '../support/credential-calls.ts'
import { collectEvents, eventsOf } from '../support/credential-events.ts'
import { startMortalRedis } from '../support/private-servers.ts'
import { type RefreshCalls, sandboxOf } from '../support/sandbox-control.ts'
import { startStoreTrap, type StoreWrite } from '../support/store-trap.ts'
import { connectCompany } from '../support/story-steps.ts'
import { backend, personalities, startSystem } from '../support/system.ts'

const troubles = ['away', 'stalled', 'killed and restarted'] as const
type Trouble = (typeof troubles)[number]

interface Point {
  readonly name: string
  readonly write: StoreWrite | null
  readonly lost: 'request' | 'answer'
  /** Whether the provider has been asked by then. */
  readonly isSpent: boolean
}
const points: readonly Point[] = [
  { name: 'before the lease', write: 'acquire', lost: 'request', isSpent: false },
  { name: 'after the lease', write: 'acquire', lost: 'answer', isSpent: false },
  { name: 'before the intent', write: 'intent', lost: 'request', isSpent: false },
  { name: 'after the intent', write: 'intent', lost: 'answer', isSpent: false },
  { name: 'during the call', write: null, lost: 'answer', isSpent: true },
  { name: 'before the commit', write: 'commit', lost: 'request', isSpent: true },
  { name: 'after the commit', write: 'commit', lost: 'answer', isSpent: true },
]
const realmOf = (point: Point): string => String(9_341_490_000 + points.indexOf(point))
const SPARE = '9341499999'

interface Outcome {
  /** While Redis was gone: what the refresh was answered, the token after it, what the provider had seen. */
  readonly answer: Told<CredentialView>
  readonly token: Told<AccessTokenView>
  readonly isTokenAccepted: boolean
  readonly calls: RefreshCalls
  /** With Redis back: the token of the same version again, and all that the provider has ever seen. */
  readonly recovered: {
    readonly token: Told<AccessTokenView>
    readonly isTokenAccepted: boolean
    readonly calls: RefreshCalls
  }
  /** `<version>/<kind>` in the order of their arrival. */
  readonly events: readonly string[]
}

describe.each(personalities)('a refresh at %s whose Redis becomes unavailable', (personality) => {
  const outcomes = new Map<string, Outcome>()
  let broker: ChannelModel

  beforeAll(async () => {
    broker = await connect(backend('TEST_AMQP_URL'))
    // All of them to their end, so that none leaves processes behind when another fails.
    const sweeps = await Promise.allSettled(
      troubles.map(async (trouble) => {
        for (const [point, outcome] of await sweep(trouble))
          outcomes.set(`${trouble}, ${point.name}`, outcome)
      }),
    )
    for (const done of sweeps) if (done.status === 'rejected') throw done.reason
  }, 110_000)
  afterAll(async () => {
    if (outcomes.size === troubles.length * points.length) printFigures()
    await broker.close()
  })

  async function sweep(trouble: Trouble): Promise<Map<Point, Outcome>> {
    await using opened = new AsyncDisposableStack()
    const own = trouble === 'killed and restarted' ? opened.use(await startMortalRedis()) : null
    const redisUrl = own?.url ?? backend('TEST_REDIS_URL')
    const relay = opened.use(await startRelay(redisUrl, 6379))
    const trap = opened.use(await startStoreTrap(relay))
    const system = opened.use(await startSystem(['sandbox-provider'], { personality }))
    // What is in Redis, past the trouble on the line.
    const redis = new Redis(redisUrl, { keyPrefix: system.redisKeyPrefix })
    opened.defer(() => redis.disconnect())
    redis.on('error', () => {})
    const provider = sandboxOf(system)
    const service = credentialsOf(system)

    const begin = async (): Promise<void> => {
      if (trouble === 'stalled') return relay.stall()
      relay.away()
      return own?.kill()
    }
    const end = async (): Promise<void> => {
      await own?.revive()
      trap.restore()
      await system.ready('token-service')
    }
    const isTokenAccepted = (realm: string, token: Told<AccessTokenView>): Promise<boolean> =>
      provider.accepts(realm, token.Authenticator)

    const outboxRelayed = (): Promise<void> =>
      eventually(async () => expect(await redis.xlen('credentials:outbox')).toBe(0))
    const untilStored = (name: string): Promise<void> =>
      eventually(async () => expect(await redis.hget(name, 'Version')).toBe('2'))

    /** The write that is about to lose its answer has been done. */
    const done: Record<StoreWrite, (name: string) => Promise<void>> = {
      acquire: async (name) => expect(await redis.exists(`lease:${name}`)).toBe(1),
      intent: async (name) => expect(await redis.hget(name, 'Intent')).toMatch(/^1:/),
      commit: async (name) => expect(await redis.hget(name, 'Version')).toBe('2'),
    }

    async function suffer(point: Point): Promise<Omit<Outcome, 'recovered' | 'events'>> {
      const realm = realmOf(point)
      const name = `ACC-${realm}`
      // All is well again, and a Redis that was restarted knows the scripts.
      await eventually(async () => expect((await service.refresh(SPARE, {})).status).toBe(200))
      await connectCompany(system, realm)
      expect(await service.token(realm)).toMatchObject({ status: 200, Version: 1 })
      // What the broker has confirmed is forgotten by the outbox, so that nothing has to come twice.
      await outboxRelayed()

      const { write, lost } = point
      if (write === null) await provider.holdNextAnswer(3_000)
      else trap.set(write, system.redisKeyPrefix + name, lost)
      const asked = service.refresh(realm, { Version: 1 })
      await eventually(async () => {
        if (write === null) expect((await provider.calls(realm)).granted).toBe(1)
        else expect(trap.hasCaught()).toBe(true)
      })
      if (write !== null && lost === 'answer') await eventually(() => done[write](name))
      await begin()
      const answer = await asked
      const token = await service.token(realm)
      const seen = {
        answer,
        token,
        isTokenAccepted: await isTokenAccepted(realm, token),
        calls: await provider.calls(realm),
      }
      await end()
      // What is in memory is stored without anybody's asking.
      if (point.isSpent) await untilStored(name)
      return seen
    }

    async function recover(point: Point): Promise<Outcome['recovered']> {
      const realm = realmOf(point)
      // A lease whose holder was never told of it runs out by itself.
      await eventually(
        async () => expect((await service.refresh(realm, { Version: 1 })).status).toBe(200),
        { seconds: 40 },
      )
      const token = await service.token(realm)
      return {
        token,
        isTokenAccepted: await isTokenAccepted(realm, token),
        calls: await provider.calls(realm),
      }
    }

    system.start('token-service', { REDIS_URL: trap.url })
    await system.ready('token-service')
    const events = await collectEvents(broker, system)
    await connectCompany(system, SPARE)

    const suffered = new Map<Point, Omit<Outcome, 'recovered' | 'events'>>()
    for (const point of points) suffered.set(point, await suffer(point))
    const found = await Promise.all(
      [...suffered].map(
        async ([point, seen]) => [point, { ...seen, recovered: await recover(point) }] as const,
      ),
    )
    await outboxRelayed()
    const told = await events.end()
    return new Map(
      found.map(([point, outcome]) => [
        point,
        { ...outcome, events: eventsOf(`ACC-${realmOf(point)}`, told) },
      ]),
    )
  }

  const outcomeOf = (trouble: Trouble, point: Point): Outcome => {
    const outcome = outcomes.get(`${trouble}, ${point.name}`)
    if (outcome === undefined) throw new Error(`nothing is known of ${trouble}, ${point.name}`)
    return outcome
  }
  const cases = troubles.flatMap((trouble) =>
    points.map((point) => ({ trouble, point, name: point.name })),
  )
  const never = { granted: 0, refused: 0, reused: 0, atOnce: 0 } satisfies RefreshCalls
  const once = { granted: 1, refused: 0, reused: 0, atOnce: 1 } satisfies RefreshCalls

  it.each(cases.filter(({ point }) => !point.isSpent))(
    'spends nothing and serves the old token: Redis $trouble $name',
    ({ trouble, point }) => {
      expect(outcomeOf(trouble, point)).toMatchObject({
        answer: { status: 503, code: 'store_unavailable' },
        token: { status: 200, Version: 1 },
        isTokenAccepted: true,
        calls: never,
      })
    },
  )

  it.each(cases.filter(({ point }) => point.isSpent))(
    'serves the new token from memory: Redis $trouble $name',
    ({ trouble, point }) => {
      expect(outcomeOf(trouble, point)).toMatchObject({
        answer: { status: 200, Version: 2 },
        token: { status: 200, Version: 2 },
        isTokenAccepted: true,
        calls: once,
      })
    },
  )

  it.each(cases)(
    'has rotated once and told it once when Redis is back: $trouble $name',
    ({ trouble, point }) => {
      const { recovered, events, token } = outcomeOf(trouble, point)
      expect(recovered).toMatchObject({
        token: {
          status: 200,
          Version: 2,
          ...(point.isSpent && { Authenticator: token.Authenticator }),
        },
        isTokenAccepted: true,
        calls: once,
      })
      expect(events).toEqual(['1/stored', '2/refreshed'])
    },
  )

  function printFigures(): void {
    const rows = troubles.map((trouble) => {
      const all = points.map((point) => outcomeOf(trouble, point))
      const count = (is: (outcome: Outcome) => boolean): number => all.filter(is).length
      const sum = (of: (outcome: Outcome) => number): number =>
        all.reduce((total, outcome) => total + of(outcome), 0)
      return [
        `Redis ${trouble} at ${all.length} points`,
        `${count(({ token }) => token.Version === 1)} times the old token served and nothing spent`,
        `${count(({ token }) => token.Version === 2)} times the new one from memory`,
        `${sum(({ recovered }) => recovered.calls.granted)} provider calls`,
        `${count(({ recovered }) => !recovered.isTokenAccepted)} grants lost`,
        `${sum(({ events }) => events.length)} events`,
      ].join(', ')
    })
    console.log(rows.join('\n'))
  }
})
