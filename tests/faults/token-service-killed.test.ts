/**
 * Kills a token-service with SIGKILL at every failpoint of the refresh protocol, for every way in which a provider
 * rotates refresh tokens. All processes are real. Each rotation has its own provider, its own prefixes in Redis and
 * RabbitMQ, and one company per failpoint. The four rotations are tested concurrently, each with two processes.
 *
 * Every killed refresh happens a day after the previous refresh of the company. A provider that rotates daily therefore
 * rotates during the killed refresh. There are two failpoints after the rotation at the provider: `during the call`,
 * when the response is in flight, and `after response`, when the response has arrived. There are two failpoints between
 * the commit and the event: `after commit` and `before publish`. The commit is one Lua script that stores the token
 * pair and its event and releases the lease, so there is no failpoint within the commit.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { deserialize, serialize } from 'node:v8'
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type ChannelModel, connect } from 'amqplib'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { tokenServiceClient, type ViewOrProblem } from '../support/clients/token-service.ts'
import { collectCredentialEvents, eventsOf } from '../support/clients/credential-events.ts'
import { type RefreshCalls, sandboxClient } from '../support/clients/sandbox.ts'
import { connectCompany } from '../support/clients/user-actions.ts'
import { diedAt, tokenServiceWithFailpoints } from '../support/processes/failpoints.ts'
import { backend, type Personality, startSystem, type System } from '../support/system.ts'

const DAY_SECONDS = 86_400

/** The sandbox settings for each kind of token rotation. `personality` is the provider that the sandbox imitates. */
const rotations = {
  never: { personality: 'intuit', rotation: 'never' },
  'daily with grace': { personality: 'intuit', graceSeconds: DAY_SECONDS },
  intuit: { personality: 'intuit' },
  strict: { personality: 'strict' },
} as const satisfies Readonly<
  Record<string, { personality: Personality; rotation?: string; graceSeconds?: number }>
>
type Rotation = keyof typeof rotations
const rotationNames = Object.keys(rotations) as Rotation[]

const points = [
  'before publish',
  'before intent',
  'after intent',
  'during the call',
  'after response',
  'before commit',
  'after commit',
  'after confirm',
] as const
type Point = (typeof points)[number]

/**
 * The expected provider calls for the rotations without a grace period. The provider no longer accepts the previous
 * refresh token, so a lost token pair cannot be recovered.
 */
const unrecoverable = {
  // Within the first day of a refresh token, the provider returns it unchanged. Therefore the previous token equals the
  // current one here. With the profile `intuit` the fault is not final, so each of the three forced refreshes tries the
  // token again.
  intuit: { rejected: 1, callsByReading: 3, Final: false },
  // token-service tries the current and the previous refresh token once each.
  strict: { rejected: 2, callsByReading: 0, Final: true },
} as const satisfies Partial<Record<Rotation, object>>
const isUnrecoverable = (rotation: Rotation): rotation is keyof typeof unrecoverable =>
  rotation in unrecoverable

/**
 * Failpoints at which the provider has already rotated the refresh token. The killed process has the only copy of
 * the new token pair, so the pair is lost.
 */
const responseLost: ReadonlySet<Point> = new Set([
  'during the call',
  'after response',
  'before commit',
])

/**
 * An event stays in the outbox if its process dies while it relays the event. The next process would relay the same
 * event and die too, so these failpoints are tested separately.
 */
const testedSeparately: ReadonlySet<Point> = new Set(['before publish', 'after confirm'])

const realmOf = (point: Point): string => String(9_341_453_000 + points.indexOf(point))
const nameOf = (point: Point): string => `ACC-${realmOf(point)}`

interface Outcome {
  /** The response status of the refresh that is repeated after the kill. */
  readonly status: number
  readonly recoverySeconds: number
  readonly credential: ViewOrProblem<CredentialView>
  readonly isTokenAccepted: boolean
  /** How many calls the provider received, for each kind of response. The call of the killed refresh is included. */
  readonly calls: Pick<RefreshCalls, 'granted' | 'rejected' | 'reused'>
  /** Number of provider calls that further token requests and refresh requests caused after the first recovery. */
  readonly callsByReading: number
  /** The state after one more refresh, or after a reconnect if the grant is lost. */
  readonly afterwards: { readonly version: number | undefined; readonly isTokenAccepted: boolean }
  /** The published events as `<version>/<kind>`, in the order of their arrival. */
  readonly events: readonly string[]
}

describe('a token-service that is killed in the middle of a refresh', () => {
  let broker: ChannelModel
  let redis: Redis
  const outcomes = new Map<string, Outcome>()
  const outcomeOf = (rotation: Rotation, point: Point): Outcome => {
    const outcome = outcomes.get(`${rotation}, ${point}`)
    if (outcome === undefined) throw new Error(`there is no outcome of ${rotation}, ${point}`)
    return outcome
  }

  beforeAll(async () => {
    broker = await connect(backend('TEST_AMQP_URL'))
    redis = new Redis(backend('TEST_REDIS_URL'))
    // Waits until the runs of all rotations have ended. If one run fails, the processes of the other runs
    // must still be stopped.
    const runs = await Promise.allSettled(
      rotationNames.map(async (rotation) => {
        const { personality } = rotations[rotation]
        await using system = await startSystem([], { personality })
        for (const [point, outcome] of await testAllPoints(system, rotation))
          outcomes.set(`${rotation}, ${point}`, outcome)
      }),
    )
    for (const run of runs) if (run.status === 'rejected') throw run.reason
  }, 300_000)
  afterAll(async () => {
    if (outcomes.size === rotationNames.length * points.length) printSummary(outcomeOf)
    redis.disconnect()
    await broker.close()
  })

  async function testAllPoints(system: System, rotation: Rotation): Promise<Map<Point, Outcome>> {
    const provider = sandboxClient(system)
    const service = tokenServiceClient(system)
    const outboxRelayed = (): Promise<void> =>
      eventually(async () =>
        expect(await redis.xlen(`${system.redisKeyPrefix}credentials:outbox`)).toBe(0),
      )
    const stop = async (): Promise<void> => {
      await outboxRelayed()
      expect(await system.service('token-service').stop('SIGTERM')).toBe(0)
    }
    const restart = async (): Promise<void> => {
      system.start('token-service')
      await system.ready('token-service')
    }

    /** Makes the access token expire at the provider and requests a newer one. The process dies during this request. */
    async function kill(point: Point): Promise<void> {
      await provider.expire(realmOf(point))
      const isKilledByTest = point === 'during the call'
      const doomed = isKilledByTest
        ? system.start('token-service')
        : system.start('token-service', { DIES_AT: point }, tokenServiceWithFailpoints)
      await system.ready('token-service')
      // The delay of the response is longer than the time that it takes to kill the process.
      if (isKilledByTest) await provider.delayNextTokenResponse(9_000)
      const refreshing = service.refresh(realmOf(point), { Version: 2 }).catch(() => null)
      if (isKilledByTest) {
        const rotated = async () => expect((await provider.calls(realmOf(point))).granted).toBe(1)
        await eventually(rotated)
      } else {
        await diedAt(doomed, point)
      }
      expect(await doomed.stop('SIGKILL')).toBeNull()
      await refreshing
    }

    const isTokenAccepted = async (point: Point): Promise<boolean> =>
      provider.accepts(realmOf(point), (await service.token(realmOf(point))).Authenticator)

    async function recover(point: Point) {
      const startedAt = performance.now()
      const { status } = await eventually(async () => {
        const response = await service.refresh(realmOf(point), { Version: 2 })
        expect(response.status).not.toBe(503)
        return response
      })
      const recoverySeconds = (performance.now() - startedAt) / 1_000
      const { granted, rejected, reused } = await provider.calls(realmOf(point))
      const outcome = {
        status,
        recoverySeconds,
        credential: await service.credential(realmOf(point)),
        isTokenAccepted: await isTokenAccepted(point),
        calls: { granted, rejected, reused },
      }
      for (let round = 0; round < 3; round += 1) {
        await service.token(realmOf(point))
        await service.refresh(realmOf(point), { Version: 2 })
        // A forced refresh (without `Version`) tries a faulted grant again only if the fault is not final.
        if (status === 424) await service.refresh(realmOf(point), {})
      }
      const after = await provider.calls(realmOf(point))
      const callsByReading = after.granted + after.rejected - granted - rejected
      if (status === 424) await connectCompany(system, realmOf(point))
      else await service.refresh(realmOf(point), {})
      const { Version: version } = await service.credential(realmOf(point))
      const afterwards = { version, isTokenAccepted: await isTokenAccepted(point) }
      return { ...outcome, callsByReading, afterwards }
    }

    const stateFile = join(system.dataDir, 'sandbox')
    async function startProvider(): Promise<void> {
      system.start('sandbox-provider', { STATE_FILE: stateFile })
      await system.ready('sandbox-provider')
      await provider.set(rotations[rotation])
    }
    /**
     * Moves the rotation time a day back in the provider's state file. The sandbox has no setting that makes a token
     * older.
     */
    async function oneDayLater(): Promise<void> {
      expect(await system.service('sandbox-provider').stop('SIGTERM')).toBe(0)
      const state = deserialize(await readFile(stateFile)) as SandboxState
      for (const { current } of state.memory.grants.grants) current.rotatedAt -= DAY_SECONDS * 1_000
      await writeFile(stateFile, serialize(state))
      await startProvider()
    }

    await startProvider()
    await restart()
    const events = await collectCredentialEvents(broker, system)
    for (const point of points) {
      await connectCompany(system, realmOf(point))
      await service.refresh(realmOf(point), {})
    }
    await stop()
    await oneDayLater()

    const outcomesByPoint = new Map<Point, Omit<Outcome, 'events'>>()
    async function killAndRecover(killed: readonly Point[]): Promise<void> {
      for (const point of killed) await kill(point)
      await restart()
      await Promise.all(
        killed.map(async (point) => outcomesByPoint.set(point, await recover(point))),
      )
      await stop()
    }
    for (const point of testedSeparately) await killAndRecover([point])
    await killAndRecover(points.filter((point) => !testedSeparately.has(point)))

    const eventIds = await events.stop()
    return new Map(
      [...outcomesByPoint].map(([point, outcome]) => [
        point,
        { ...outcome, events: eventsOf(nameOf(point), eventIds) },
      ]),
    )
  }

  it('the crash tests of token-service cover all failpoints of the refresh protocol', async () => {
    await using system = await startSystem([])
    const started = system.start('token-service', { DIES_AT: 'which?' }, tokenServiceWithFailpoints)
    // A process that is started with an unknown failpoint lists the known failpoints and exits.
    const [list] = await started.waitForOutput(/\[.*\]/)
    const named = JSON.parse(list) as string[]
    expect([...named, 'during the call'].toSorted()).toEqual(points.toSorted())
  })

  const isRecoverable = (rotation: Rotation, point: Point): boolean =>
    !isUnrecoverable(rotation) || !responseLost.has(point)
  const cases = rotationNames.flatMap((rotation) =>
    points.map((point) => ({ rotation, point, recoverable: isRecoverable(rotation, point) })),
  )

  it.each(cases.filter(({ recoverable }) => recoverable))(
    'a token-service killed at "$point" keeps the grant if the provider rotation is "$rotation"',
    ({ rotation, point }) => {
      const outcome = outcomeOf(rotation, point)
      expect(outcome).toMatchObject({
        status: 200,
        credential: { Status: 'active', Version: 3 },
        isTokenAccepted: true,
        // After a lost response, the service sends the previous refresh token again. The provider accepts this token
        // within the grace period.
        calls: responseLost.has(point)
          ? { granted: 2, rejected: 0, reused: rotation === 'never' ? 0 : 1 }
          : { granted: 1, rejected: 0, reused: 0 },
        callsByReading: 0,
        afterwards: { version: 4, isTokenAccepted: true },
      })
      expect(outcome.credential).not.toHaveProperty('Fault')
      // An event that was confirmed but not yet removed from the outbox is published again by the next process, with
      // the same id.
      const duplicate = point === 'after confirm' ? ['3/refreshed'] : []
      expect(outcome.events).toEqual([
        '1/stored',
        '2/refreshed',
        '3/refreshed',
        ...duplicate,
        '4/refreshed',
      ])
    },
  )

  it.each(cases.filter(({ recoverable }) => !recoverable))(
    'a token-service killed at "$point" publishes one fault if the provider rotation is "$rotation", and a reconnect clears it',
    ({ rotation, point }) => {
      if (!isUnrecoverable(rotation))
        throw new TypeError(`a lost rotation is recoverable with ${rotation}`)
      const { rejected, callsByReading, Final } = unrecoverable[rotation]
      const outcome = outcomeOf(rotation, point)
      expect(outcome).toMatchObject({
        status: 424,
        credential: {
          Status: 'faulted',
          Version: 2,
          Fault: {
            Code: 'rotation_lost',
            Final,
            Message: `Couldn't refresh token for realm ${nameOf(point)}, {"error":"invalid_grant","error_description":"Incorrect or invalid refresh token"}`,
          },
        },
        calls: { granted: 1, rejected, reused: rejected },
        callsByReading,
        afterwards: { version: 3, isTokenAccepted: true },
        events: ['1/stored', '2/refreshed', '2/faulted', '3/stored'],
      })
    },
  )
})

/** The part of the sandbox's state file that these tests change. */
interface SandboxState {
  readonly memory: {
    readonly grants: { readonly grants: Set<{ readonly current: { rotatedAt: number } }> }
  }
}

function printSummary(outcomeOf: (rotation: Rotation, point: Point) => Outcome): void {
  const rows = rotationNames.map((rotation) => {
    const all = points.map((point) => outcomeOf(rotation, point))
    const sum = (count: (outcome: Outcome) => number): number =>
      all.reduce((total, outcome) => total + count(outcome), 0)
    const events = sum((outcome) => outcome.events.length)
    const distinct = sum((outcome) => new Set(outcome.events).size)
    return [
      `rotation ${rotation}: ${all.length} kills`,
      `${sum(({ status }) => (status === 200 ? 0 : 1))} grants lost`,
      `${sum(({ credential }) => (credential.Fault?.Code === 'rotation_lost' ? 1 : 0))} faults rotation_lost`,
      `${sum(({ calls }) => calls.granted)} provider calls granted`,
      `${sum(({ calls }) => calls.rejected)} rejected`,
      `${sum(({ calls }) => calls.reused)} with a token that was already rotated`,
      `${distinct} events (${events - distinct} twice)`,
      `recovered after at most ${Math.max(...all.map((outcome) => outcome.recoverySeconds)).toFixed(1)} s`,
    ].join(', ')
  })
  console.log(rows.join('\n'))
}
