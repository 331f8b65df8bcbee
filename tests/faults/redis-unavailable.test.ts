/**
 * Redis becomes unavailable during a refresh. Each test starts a fault at one point of the refresh protocol: before or
 * after Redis executes one of the writes, or during the call to the provider. In the three kinds of fault, Redis is
 * unreachable, unresponsive, or killed and restarted from its append-only file. The provider rotates the refresh token
 * at every refresh and rejects used tokens. Therefore a grant survives only if the service stores the successor of
 * every refresh token that it uses. The three kinds are tested concurrently, each with its own provider and
 * token-service.
 */
import type { AccessTokenView, CredentialView } from '@integration-host/shared/contracts/credential'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { startRelay } from '@integration-host/shared/test-support/relay'
import { type ChannelModel, connect } from 'amqplib'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { tokenServiceClient, type ViewOrProblem } from '../support/clients/token-service.ts'
import { collectCredentialEvents, eventsOf } from '../support/clients/credential-events.ts'
import { startRestartableServer } from '../support/backends/restartable-servers.ts'
import { type RefreshCalls, sandboxClient } from '../support/clients/sandbox.ts'
import { startRedisFaultProxy, type StoreWrite } from '../support/fakes/redis-fault-proxy.ts'
import { connectCompany } from '../support/clients/user-actions.ts'
import { backend, personalities, startSystem } from '../support/system.ts'

const faults = ['unreachable', 'stalled', 'killed and restarted'] as const
type Fault = (typeof faults)[number]

interface Point {
  readonly name: string
  readonly write: StoreWrite | null
  readonly lost: 'request' | 'reply'
  /** Whether the provider has received the refresh token when the fault begins. */
  readonly isTokenUsed: boolean
}
const points: readonly Point[] = [
  { name: 'before acquiring the lease', write: 'acquire', lost: 'request', isTokenUsed: false },
  { name: 'after acquiring the lease', write: 'acquire', lost: 'reply', isTokenUsed: false },
  { name: 'before storing the intent', write: 'intent', lost: 'request', isTokenUsed: false },
  { name: 'after storing the intent', write: 'intent', lost: 'reply', isTokenUsed: false },
  { name: 'during the provider call', write: null, lost: 'reply', isTokenUsed: true },
  { name: 'before storing the tokens', write: 'commit', lost: 'request', isTokenUsed: true },
  { name: 'after storing the tokens', write: 'commit', lost: 'reply', isTokenUsed: true },
]
const realmOf = (point: Point): string => String(9_341_490_000 + points.indexOf(point))
const OTHER_REALM = '9341499999'

interface Outcome {
  /**
   * The state during the fault: the response to the refresh, the token that the service issued afterwards, and the
   * calls that the provider received.
   */
  readonly refresh: ViewOrProblem<CredentialView>
  readonly token: ViewOrProblem<AccessTokenView>
  readonly isTokenAccepted: boolean
  readonly calls: RefreshCalls
  /** The state after the fault: the token that the service issues, and all calls that the provider received. */
  readonly recovered: {
    readonly token: ViewOrProblem<AccessTokenView>
    readonly isTokenAccepted: boolean
    readonly calls: RefreshCalls
  }
  /** The published events as `<version>/<kind>`, in the order of their arrival. */
  readonly events: readonly string[]
}

describe.each(personalities)(
  'a refresh at the provider %s while Redis is unavailable',
  (personality) => {
    const outcomes = new Map<string, Outcome>()
    let broker: ChannelModel

    beforeAll(async () => {
      broker = await connect(backend('TEST_AMQP_URL'))
      // Waits until the runs of all kinds of fault have ended. If one run fails, the processes of the other runs
      // must still be stopped.
      const runs = await Promise.allSettled(
        faults.map(async (fault) => {
          for (const [point, outcome] of await testAllPoints(fault))
            outcomes.set(`${fault}, ${point.name}`, outcome)
        }),
      )
      for (const run of runs) if (run.status === 'rejected') throw run.reason
    }, 300_000)
    afterAll(async () => {
      if (outcomes.size === faults.length * points.length) printSummary()
      await broker.close()
    })

    async function testAllPoints(fault: Fault): Promise<Map<Point, Outcome>> {
      await using opened = new AsyncDisposableStack()
      const ownRedis =
        fault === 'killed and restarted' ? opened.use(await startRestartableServer('redis')) : null
      const redisUrl = ownRedis?.url ?? backend('TEST_REDIS_URL')
      const relay = opened.use(await startRelay(redisUrl, 6379))
      const redisProxy = opened.use(await startRedisFaultProxy(relay))
      const system = opened.use(await startSystem(['sandbox-provider'], { personality }))
      // The test's own connection goes directly to Redis, so that the fault does not affect it.
      const redis = new Redis(redisUrl, { keyPrefix: system.redisKeyPrefix })
      opened.defer(() => redis.disconnect())
      redis.on('error', () => {})
      const provider = sandboxClient(system)
      const service = tokenServiceClient(system)

      const beginFault = async (): Promise<void> => {
        if (fault === 'stalled') return relay.stall()
        relay.away()
        return ownRedis?.kill()
      }
      const endFault = async (): Promise<void> => {
        await ownRedis?.restart()
        redisProxy.restore()
        await system.ready('token-service')
      }
      const isTokenAccepted = (
        realm: string,
        token: ViewOrProblem<AccessTokenView>,
      ): Promise<boolean> => provider.accepts(realm, token.Authenticator)

      const outboxRelayed = (): Promise<void> =>
        eventually(async () => expect(await redis.xlen('credentials:outbox')).toBe(0))
      const untilStored = (name: string): Promise<void> =>
        eventually(async () => expect(await redis.hget(name, 'Version')).toBe('2'))

      /**
       * For each kind of write, an assertion that passes as soon as Redis has executed the write. The assertions are
       * used for the faults in which Redis executes the write but the reply is lost.
       */
      const isExecuted: Record<StoreWrite, (name: string) => Promise<void>> = {
        acquire: async (name) => expect(await redis.exists(`lease:${name}`)).toBe(1),
        intent: async (name) => expect(await redis.hget(name, 'Intent')).toMatch(/^1:/),
        commit: async (name) => expect(await redis.hget(name, 'Version')).toBe('2'),
      }

      async function refreshDuringFault(
        point: Point,
      ): Promise<Omit<Outcome, 'recovered' | 'events'>> {
        const realm = realmOf(point)
        const name = `ACC-${realm}`
        // Waits until the service has recovered from the previous fault and a restarted Redis has loaded the scripts
        // again.
        await eventually(async () =>
          expect((await service.refresh(OTHER_REALM, {})).status).toBe(200),
        )
        await connectCompany(system, realm)
        expect(await service.token(realm)).toMatchObject({ status: 200, Version: 1 })
        // The outbox must be empty before the fault. Otherwise an event that is confirmed but not yet removed would
        // be published twice.
        await outboxRelayed()

        const { write, lost } = point
        if (write === null) await provider.delayNextTokenResponse(3_000)
        else redisProxy.failNext(write, system.redisKeyPrefix + name, lost)
        const refreshing = service.refresh(realm, { Version: 1 })
        await eventually(async () => {
          if (write === null) expect((await provider.calls(realm)).granted).toBe(1)
          else expect(redisProxy.hasFailed()).toBe(true)
        })
        if (write !== null && lost === 'reply') await eventually(() => isExecuted[write](name))
        await beginFault()
        const refresh = await refreshing
        const token = await service.token(realm)
        const outcome = {
          refresh,
          token,
          isTokenAccepted: await isTokenAccepted(realm, token),
          calls: await provider.calls(realm),
        }
        await endFault()
        // token-service has kept the new token pair in memory. After the fault it stores the pair without a further
        // request.
        if (point.isTokenUsed) await untilStored(name)
        return outcome
      }

      async function recover(point: Point): Promise<Outcome['recovered']> {
        const realm = realmOf(point)
        // If the reply to the acquisition of a lease was lost, no process releases the lease, and the refresh succeeds
        // only after the lease has expired. If an intent was stored before Redis was restarted, the refresh also waits
        // for the end of the deferral (40 s).
        await eventually(
          async () => expect((await service.refresh(realm, { Version: 1 })).status).toBe(200),
          { seconds: 80 },
        )
        const token = await service.token(realm)
        return {
          token,
          isTokenAccepted: await isTokenAccepted(realm, token),
          calls: await provider.calls(realm),
        }
      }

      system.start('token-service', { REDIS_URL: redisProxy.url })
      await system.ready('token-service')
      const events = await collectCredentialEvents(broker, system)
      await connectCompany(system, OTHER_REALM)

      const duringFault = new Map<Point, Omit<Outcome, 'recovered' | 'events'>>()
      for (const point of points) duringFault.set(point, await refreshDuringFault(point))
      const results = await Promise.all(
        [...duringFault].map(
          async ([point, outcome]) =>
            [point, { ...outcome, recovered: await recover(point) }] as const,
        ),
      )
      await outboxRelayed()
      const eventIds = await events.stop()
      return new Map(
        results.map(([point, outcome]) => [
          point,
          { ...outcome, events: eventsOf(`ACC-${realmOf(point)}`, eventIds) },
        ]),
      )
    }

    const outcomeOf = (fault: Fault, point: Point): Outcome => {
      const outcome = outcomes.get(`${fault}, ${point.name}`)
      if (outcome === undefined) throw new Error(`there is no outcome of ${fault}, ${point.name}`)
      return outcome
    }
    const cases = faults.flatMap((fault) =>
      points.map((point) => ({ fault, point, name: point.name })),
    )
    const never = { granted: 0, rejected: 0, reused: 0, maxConcurrent: 0 } satisfies RefreshCalls
    const once = { granted: 1, rejected: 0, reused: 0, maxConcurrent: 1 } satisfies RefreshCalls

    it.each(cases.filter(({ point }) => !point.isTokenUsed))(
      'token-service uses no refresh token and serves the old access token if Redis is $fault $name',
      ({ fault, point }) => {
        expect(outcomeOf(fault, point)).toMatchObject({
          refresh: { status: 503, code: 'store_unavailable' },
          token: { status: 200, Version: 1 },
          isTokenAccepted: true,
          calls: never,
        })
      },
    )

    it.each(cases.filter(({ point }) => point.isTokenUsed))(
      'token-service serves the new access token from memory if Redis is $fault $name',
      ({ fault, point }) => {
        expect(outcomeOf(fault, point)).toMatchObject({
          refresh: { status: 200, Version: 2 },
          token: { status: 200, Version: 2 },
          isTokenAccepted: true,
          calls: once,
        })
      },
    )

    it.each(cases)(
      'token-service rotates the token once and publishes one event although Redis is $fault $name',
      ({ fault, point }) => {
        const { recovered, events, token } = outcomeOf(fault, point)
        expect(recovered).toMatchObject({
          token: {
            status: 200,
            Version: 2,
            ...(point.isTokenUsed && { Authenticator: token.Authenticator }),
          },
          isTokenAccepted: true,
          calls: once,
        })
        expect(events).toEqual(['1/stored', '2/refreshed'])
      },
    )

    function printSummary(): void {
      const rows = faults.map((fault) => {
        const all = points.map((point) => outcomeOf(fault, point))
        const count = (is: (outcome: Outcome) => boolean): number => all.filter(is).length
        const sum = (of: (outcome: Outcome) => number): number =>
          all.reduce((total, outcome) => total + of(outcome), 0)
        return [
          `Redis ${fault} at ${all.length} points`,
          `${count(({ token }) => token.Version === 1)} times the old token served and no refresh token used`,
          `${count(({ token }) => token.Version === 2)} times the new token served from memory`,
          `${sum(({ recovered }) => recovered.calls.granted)} provider calls`,
          `${count(({ recovered }) => !recovered.isTokenAccepted)} grants lost`,
          `${sum(({ events }) => events.length)} events`,
        ].join(', ')
      })
      console.log(rows.join('\n'))
    }
  },
)
