/**
 * A token-service killed with SIGKILL at every point of the refresh protocol, under every way in which a
 * provider rotates. All processes are real; each rotation has its own provider, its own names, and one
 * company per point. The four sweeps run at the same time, each with two processes.
 *
 * Every refresh that is killed comes a day after the company's last one, so that it rotates under `daily` as
 * well. What the protocol names beside the points below: after the provider rotated is `during the call` (the
 * answer is on its way) and `after response` (it is here); after commit before event is `after commit` and
 * `before publish`. The commit is one script that stores the pair, its event and the release of the lease, so
 * before release is `before commit` on one side of it and `after commit` on the other.
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { deserialize, serialize } from 'node:v8'
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type ChannelModel, connect } from 'amqplib'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { credentialsOf, type Told } from '../support/credential-calls.ts'
import { collectEvents, eventsOf } from '../support/credential-events.ts'
import { type RefreshCalls, sandboxOf } from '../support/sandbox-control.ts'
import { connectCompany } from '../support/story-steps.ts'
import { backend, type Personality, startSystem, type System } from '../support/system.ts'

const DYING = 'test-support/failpoint-main.ts'

const DAY_SECONDS = 86_400

/** Settings of the sandbox, on top of those of the personality. */
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

/** Without grace a lost pair cannot be recovered: these rotations, and what the provider then sees. */
const unrecoverable = {
  // The token before it is the same one: the value had not moved within its first day. Under the profile
  // `intuit` the fault is provisional, so the token is tried again for a caller that insists.
  intuit: { rejected: 1, callsByReading: 3, Final: false },
  // The token that was used and the one before it, each tried once.
  strict: { rejected: 2, callsByReading: 0, Final: true },
} as const satisfies Partial<Record<Rotation, object>>
const isUnrecoverable = (rotation: Rotation): rotation is keyof typeof unrecoverable =>
  rotation in unrecoverable

/** The provider has rotated, and the only copy of the new pair dies with the process. */
const answerLost: ReadonlySet<Point> = new Set([
  'during the call',
  'after response',
  'before commit',
])

/** Who dies relaying leaves an event that the next one might relay, and die with before it is forgotten. */
const alone: ReadonlySet<Point> = new Set(['before publish', 'after confirm'])

const realmOf = (point: Point): string => String(9_341_453_000 + points.indexOf(point))
const nameOf = (point: Point): string => `ACC-${realmOf(point)}`

interface Outcome {
  /** Of the refresh that is asked again after the kill. */
  readonly status: number
  readonly recoverySeconds: number
  readonly credential: Told<CredentialView>
  readonly isTokenAccepted: boolean
  /** What the provider saw, with the refresh that was killed. */
  readonly calls: Pick<RefreshCalls, 'granted' | 'refused' | 'reused'>
  /** Provider calls that asking and reading again and again led to. */
  readonly callsByReading: number
  /** One more refresh, or where the grant is lost a reconnect. */
  readonly afterwards: { readonly version: number | undefined; readonly isTokenAccepted: boolean }
  /** `<version>/<kind>` in the order of their arrival. */
  readonly events: readonly string[]
}

describe('a token-service that is killed in the middle of a refresh', () => {
  let broker: ChannelModel
  let redis: Redis
  const outcomes = new Map<string, Outcome>()
  const outcomeOf = (rotation: Rotation, point: Point): Outcome => {
    const outcome = outcomes.get(`${rotation}, ${point}`)
    if (outcome === undefined) throw new Error(`nothing is known of ${rotation}, ${point}`)
    return outcome
  }

  beforeAll(async () => {
    broker = await connect(backend('TEST_AMQP_URL'))
    redis = new Redis(backend('TEST_REDIS_URL'))
    // All of them to their end, so that none leaves processes behind when another fails.
    const sweeps = await Promise.allSettled(
      rotationNames.map(async (rotation) => {
        const { personality } = rotations[rotation]
        await using system = await startSystem([], { personality })
        const found = await sweep(system, rotation)
        for (const [point, outcome] of found) outcomes.set(`${rotation}, ${point}`, outcome)
      }),
    )
    for (const done of sweeps) if (done.status === 'rejected') throw done.reason
  }, 200_000)
  afterAll(async () => {
    if (outcomes.size === rotationNames.length * points.length) printFigures(outcomeOf)
    redis.disconnect()
    await broker.close()
  })

  async function sweep(system: System, rotation: Rotation): Promise<Map<Point, Outcome>> {
    const provider = sandboxOf(system)
    const service = credentialsOf(system)
    const outboxRelayed = (): Promise<void> =>
      eventually(async () =>
        expect(await redis.xlen(`${system.redisKeyPrefix}credentials:outbox`)).toBe(0),
      )
    const stop = async (): Promise<void> => {
      await outboxRelayed()
      expect(await system.service('token-service').stop('SIGTERM')).toBe(0)
    }
    const revive = async (): Promise<void> => {
      system.start('token-service')
      await system.ready('token-service')
    }

    /** The provider lets the access token expire, somebody asks for a newer one, and the process dies. */
    async function kill(point: Point): Promise<void> {
      await provider.expire(realmOf(point))
      const isFromOutside = point === 'during the call'
      const dying = isFromOutside
        ? system.start('token-service')
        : system.start('token-service', { DIES_AT: point }, DYING)
      await system.ready('token-service')
      // Longer than it takes until the caller is dead.
      if (isFromOutside) await provider.holdNextAnswer(9_000)
      const asked = service.refresh(realmOf(point), { Version: 2 }).catch(() => null)
      if (isFromOutside) {
        const rotated = async () => expect((await provider.calls(realmOf(point))).granted).toBe(1)
        await eventually(rotated)
      } else {
        await eventually(() => expect(dying.output()).toContain(`died ${point}\n`))
      }
      expect(await dying.stop('SIGKILL')).toBeNull()
      await asked
    }

    const isTokenAccepted = async (point: Point): Promise<boolean> =>
      provider.accepts(realmOf(point), (await service.token(realmOf(point))).Authenticator)

    async function recover(point: Point) {
      const startedAt = performance.now()
      const { status } = await eventually(
        async () => {
          const answer = await service.refresh(realmOf(point), { Version: 2 })
          expect(answer.status).not.toBe(503)
          return answer
        },
        { seconds: 40 },
      )
      const recoverySeconds = (performance.now() - startedAt) / 1_000
      const { granted, refused, reused } = await provider.calls(realmOf(point))
      const found = {
        status,
        recoverySeconds,
        credential: await service.credential(realmOf(point)),
        isTokenAccepted: await isTokenAccepted(point),
        calls: { granted, refused, reused },
      }
      for (let round = 0; round < 3; round += 1) {
        await service.token(realmOf(point))
        await service.refresh(realmOf(point), { Version: 2 })
        // A grant whose fault is final is not tried again, even if a caller insists.
        if (status === 424) await service.refresh(realmOf(point), {})
      }
      const after = await provider.calls(realmOf(point))
      const callsByReading = after.granted + after.refused - granted - refused
      if (status === 424) await connectCompany(system, realmOf(point))
      else await service.refresh(realmOf(point), {})
      const { Version: version } = await service.credential(realmOf(point))
      const afterwards = { version, isTokenAccepted: await isTokenAccepted(point) }
      return { ...found, callsByReading, afterwards }
    }

    const stateFile = join(system.dataDir, 'sandbox')
    async function startProvider(): Promise<void> {
      system.start('sandbox-provider', { STATE_FILE: stateFile })
      await system.ready('sandbox-provider')
      await provider.set(rotations[rotation])
    }
    /** The provider as it is a day later; it has no knob for the age of a token. */
    async function oneDayLater(): Promise<void> {
      expect(await system.service('sandbox-provider').stop('SIGTERM')).toBe(0)
      const state = deserialize(await readFile(stateFile)) as SandboxState
      for (const { current } of state.memory.grants.grants) current.rotatedAt -= DAY_SECONDS * 1_000
      await writeFile(stateFile, serialize(state))
      await startProvider()
    }

    await startProvider()
    await revive()
    const events = await collectEvents(broker, system)
    for (const point of points) {
      await connectCompany(system, realmOf(point))
      await service.refresh(realmOf(point), {})
    }
    await stop()
    await oneDayLater()

    const found = new Map<Point, Omit<Outcome, 'events'>>()
    async function killAndRecover(killed: readonly Point[]): Promise<void> {
      for (const point of killed) await kill(point)
      await revive()
      await Promise.all(killed.map(async (point) => found.set(point, await recover(point))))
      await stop()
    }
    for (const point of alone) await killAndRecover([point])
    await killAndRecover(points.filter((point) => !alone.has(point)))

    const told = await events.end()
    return new Map(
      [...found].map(([point, outcome]) => [
        point,
        { ...outcome, events: eventsOf(nameOf(point), told) },
      ]),
    )
  }

  it('is killed at every point that the protocol names', async () => {
    await using system = await startSystem([])
    const asked = system.start('token-service', { DIES_AT: 'which?' }, DYING)
    const named = await eventually(() => {
      const list = /\[.*\]/.exec(asked.output())
      if (list === null) throw new Error('it has not told its points yet')
      return JSON.parse(list[0]) as string[]
    })
    expect([...named, 'during the call'].toSorted()).toEqual(points.toSorted())
  })

  const isRecoverable = (rotation: Rotation, point: Point): boolean =>
    !isUnrecoverable(rotation) || !answerLost.has(point)
  const cases = rotationNames.flatMap((rotation) =>
    points.map((point) => ({ rotation, point, recoverable: isRecoverable(rotation, point) })),
  )

  it.each(cases.filter(({ recoverable }) => recoverable))(
    'keeps the grant when it dies $point, rotation $rotation',
    ({ rotation, point }) => {
      const outcome = outcomeOf(rotation, point)
      expect(outcome).toMatchObject({
        status: 200,
        credential: { Status: 'active', Version: 3 },
        isTokenAccepted: true,
        // Only a provider that rotated with the lost answer sees an old token, and takes it.
        calls: answerLost.has(point)
          ? { granted: 2, refused: 0, reused: rotation === 'never' ? 0 : 1 }
          : { granted: 1, refused: 0, reused: 0 },
        callsByReading: 0,
        afterwards: { version: 4, isTokenAccepted: true },
      })
      expect(outcome.credential).not.toHaveProperty('Fault')
      // What was confirmed and not yet forgotten comes again, under the same id.
      const again = point === 'after confirm' ? ['3/refreshed'] : []
      expect(outcome.events).toEqual([
        '1/stored',
        '2/refreshed',
        '3/refreshed',
        ...again,
        '4/refreshed',
      ])
    },
  )

  it.each(cases.filter(({ recoverable }) => !recoverable))(
    'publishes once that the rotation is lost when it dies $point, rotation $rotation, and a reconnect ends the fault',
    ({ rotation, point }) => {
      if (!isUnrecoverable(rotation)) throw new TypeError(`${rotation} recovers`)
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
        calls: { granted: 1, refused: rejected, reused: rejected },
        callsByReading,
        afterwards: { version: 3, isTokenAccepted: true },
        events: ['1/stored', '2/refreshed', '2/faulted', '3/stored'],
      })
    },
  )
})

/** What of the sandbox's state file this test changes. */
interface SandboxState {
  readonly memory: {
    readonly grants: { readonly grants: Set<{ readonly current: { rotatedAt: number } }> }
  }
}

function printFigures(outcomeOf: (rotation: Rotation, point: Point) => Outcome): void {
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
      `${sum(({ calls }) => calls.refused)} refused`,
      `${sum(({ calls }) => calls.reused)} with a rotated token`,
      `${distinct} events (${events - distinct} twice)`,
      `back after at most ${Math.max(...all.map((outcome) => outcome.recoverySeconds)).toFixed(1)} s`,
    ].join(', ')
  })
  console.log(rows.join('\n'))
}
