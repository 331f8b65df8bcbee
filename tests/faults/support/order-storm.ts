import { setTimeout as delay } from 'node:timers/promises'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import type { ServiceProcess, System } from '../../support/system.ts'
import { logged, startBeside } from './coordinators.ts'
import { type Balance, type Books, openBooks } from './books.ts'
import { seededRandom } from './scale.ts'
import { startTarget, type Target } from './target.ts'

export interface StormOptions {
  readonly orders: number
  readonly kills: number
  readonly killEveryMs: number
  /** Settings of the coordinators. */
  readonly env: Readonly<Record<string, string>>
  /** `src/main.ts` unless given. */
  readonly entry?: string
  /** What else happens meanwhile, one after the other; each resolves when its backend is back. */
  readonly outages?: readonly (() => Promise<void>)[]
}

export interface StormFigures extends Balance {
  readonly kills: number
  /** Kills of a coordinator that had steps in hand. */
  readonly killsAtWork: number
  /** From the last kill or outage until every order was completed. */
  readonly recoverySeconds: number
}

/** Long enough that workers die in calls, short enough that the orders get through. */
const ANSWER_MS = 250
const QUEUEING_LANES = 40
const RECOVERY_SECONDS = 60
/** Longer than a coordinator takes from its start to its first step. */
const PATIENCE_MS = 10_000

interface Disaster {
  isOver: boolean
  isBackendAway: boolean
}

/**
 * Queues orders through the demo API while one coordinator lives on and others are killed with SIGKILL, one
 * every `killEveryMs` on average. Fails unless all is recovered in a minute and the books are balanced.
 */
export async function orderStorm(system: System, options: StormOptions): Promise<StormFigures> {
  await using target: Target = await startTarget()
  target.latencyMs = ANSWER_MS
  const env = { DEMO_API_URL: target.url, ...options.env }
  const { entry } = options
  system.start('demo-api')
  const coordinators = [system.start('coordinator', env, entry)]
  await system.ready('demo-api', 'coordinator')
  await using books: Books = await openBooks(system)
  const ids = Array.from({ length: options.orders }, (_, n) => `s${n}`)

  const queueing = queueAll(system, ids)
  const disaster: Disaster = { isOver: false, isBackendAway: false }
  // Not `replica`, which waits until it is ready: a backend may be away just then.
  const another = (): ServiceProcess => {
    const coordinator = startBeside(system, env, entry)
    coordinators.push(coordinator)
    return coordinator
  }
  const killing = killAgainAndAgain(another, options, disaster)
  for (const outage of options.outages ?? []) {
    await delay(options.killEveryMs * 2)
    disaster.isBackendAway = true
    await outage()
    disaster.isBackendAway = false
  }
  disaster.isOver = true
  const kills = await killing
  const lastFaultAt = performance.now()
  // What is measured now is the recovery, not how slow the target was made.
  target.latencyMs = 0
  await queueing
  await eventually(
    async () => expect(await books.count()).toEqual({ headers: ids.length, completed: ids.length }),
    { seconds: RECOVERY_SECONDS },
  )
  const recoverySeconds = (performance.now() - lastFaultAt) / 1_000
  await eventually(async () => expect(await books.waiting()).toEqual({})).catch(
    async (error: unknown) => {
      // What lies in the dead queue was put there by the broker, or with a line in the log of who did it.
      const aside = coordinators
        .flatMap((coordinator) => coordinator.output().split('\n'))
        .filter((line) => /dead-lettered|delivery handler failed/.test(line))
      const found = [...(await books.deadLetters()), ...aside]
      throw new Error(['the queues are not empty', ...found].join('\n'), { cause: error })
    },
  )
  return { ...(await books.balance(ids, target)), ...kills, recoverySeconds }
}

/** A caller that repeats what was not answered with success: nothing else can be lost. */
async function queueAll(system: System, ids: readonly string[]): Promise<void> {
  const left = ids.values()
  const lane = async (): Promise<void> => {
    for (const id of left)
      for (;;) {
        const answer = await fetch(`${system.url('demo-api')}/queue?number=${id}`).catch(() => null)
        await answer?.body?.cancel()
        if (answer?.status === 200) break
        await delay(100)
      }
  }
  await Promise.all(Array.from({ length: QUEUEING_LANES }, lane))
}

/** Three at a time, so that each has lived for three intervals when its turn comes. */
async function killAgainAndAgain(
  another: () => ServiceProcess,
  { kills: least, killEveryMs }: StormOptions,
  disaster: Readonly<Disaster>,
): Promise<{ kills: number; killsAtWork: number }> {
  const random = seededRandom()
  const dying: ServiceProcess[] = [another(), another()]
  let kills = 0
  let killsAtWork = 0
  while (kills < least || !disaster.isOver) {
    dying.push(another())
    await delay(killEveryMs * (0.5 + random()))
    const victim = dying.shift()
    if (victim === undefined) break
    // One that has not come to work yet would die of nothing; while a backend is away none does.
    const waitingSince = performance.now()
    const patienceMs = () => (disaster.isBackendAway ? killEveryMs : PATIENCE_MS)
    while (!hasStepsInHand(victim) && performance.now() - waitingSince < patienceMs())
      await delay(20)
    await victim.stop('SIGKILL')
    kills += 1
    if (hasStepsInHand(victim)) killsAtWork += 1
  }
  await Promise.all(dying.map((process) => process.stop('SIGKILL')))
  return { kills, killsAtWork }
}

const hasStepsInHand = (victim: ServiceProcess): boolean =>
  logged(victim, 'step start') >
  logged(victim, 'step completed') + logged(victim, 'step not completed')
