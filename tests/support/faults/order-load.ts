import { setTimeout as delay } from 'node:timers/promises'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import { startStepTarget } from '../fakes/step-target.ts'
import type { ServiceProcess, System } from '../system.ts'
import { countLogLines, startAnotherCoordinator } from './coordinators.ts'
import { type FaultCounts, openDatabase } from './database-assertions.ts'
import { seededRandom } from './scale.ts'
import { stepQueuesOf } from './step-queues.ts'

export interface OrderLoadOptions {
  readonly orders: number
  readonly kills: number
  readonly killEveryMs: number
  /** Settings of the coordinators. */
  readonly env: Readonly<Record<string, string>>
  /** Path of the coordinators' entry module. Default: `src/main.ts`. */
  readonly entry?: string
  /** Causes outages of backends, one after the other. Each function resolves when its backend is available again. */
  readonly outages?: readonly (() => Promise<void>)[]
}

export interface OrderLoadResult extends FaultCounts {
  readonly kills: number
  /** Number of coordinators that were killed while they had steps in flight. */
  readonly killsDuringSteps: number
  /** Seconds from the last kill or outage until every order was completed. */
  readonly recoverySeconds: number
}

/**
 * The response time of the target. It is long enough for workers to die during calls, and short enough for the
 * orders to be completed.
 */
const RESPONSE_MS = 250
const CONCURRENT_CALLERS = 40
const RECOVERY_SECONDS = 60
/** A coordinator reaches its first step in less than this time after its start. */
const FIRST_STEP_DEADLINE_MS = 10_000

export interface FaultPhase {
  isOver: boolean
  isBackendUnavailable: boolean
}

/**
 * Queues orders through the demo API. One coordinator keeps running, while others are killed with SIGKILL, on average
 * one every `killEveryMs`. Fails unless every order is completed within a minute after the last fault, and unless the
 * rows, calls and files are consistent.
 */
export async function runOrderLoad(
  system: System,
  options: OrderLoadOptions,
): Promise<OrderLoadResult> {
  await using target = await startStepTarget()
  target.latencyMs = RESPONSE_MS
  const env = { DEMO_API_URL: target.url, ...options.env }
  const { entry } = options
  system.start('demo-api')
  const coordinators = [system.start('coordinator', env, entry)]
  await system.ready('demo-api', 'coordinator')
  await using database = await openDatabase(system)
  const queues = stepQueuesOf(system)
  const ids = Array.from({ length: options.orders }, (_, n) => `s${n}`)

  const queueing = queueAll(system, ids)
  const phase: FaultPhase = { isOver: false, isBackendUnavailable: false }
  // `system.replica` would wait until the service is ready, which is impossible while a backend is unavailable.
  const startNext = (): ServiceProcess => {
    const coordinator = startAnotherCoordinator(system, env, entry)
    coordinators.push(coordinator)
    return coordinator
  }
  const killing = killRepeatedly(startNext, options, phase)
  for (const outage of options.outages ?? []) {
    await delay(options.killEveryMs * 2)
    phase.isBackendUnavailable = true
    await outage()
    phase.isBackendUnavailable = false
  }
  phase.isOver = true
  const kills = await killing
  const lastFaultAt = performance.now()
  // The target responds without delay from here on, so that its delay is not a part of the measured recovery time.
  target.latencyMs = 0
  await queueing
  await eventually(
    async () =>
      expect(await database.countRuns()).toEqual({ runs: ids.length, completed: ids.length }),
    { seconds: RECOVERY_SECONDS },
  )
  const recoverySeconds = (performance.now() - lastFaultAt) / 1_000
  await eventually(async () => expect(await queues.ready()).toEqual({})).catch(
    async (error: unknown) => {
      // A message is dead-lettered by the broker or by a coordinator. Only the coordinator logs a line.
      const logLines = coordinators
        .flatMap((coordinator) => coordinator.output().split('\n'))
        .filter((line) => /dead-lettered|message handler failed/.test(line))
      throw new Error(['the queues are not empty', ...logLines].join('\n'), { cause: error })
    },
  )
  return { ...(await database.expectConsistent(ids, target)), ...kills, recoverySeconds }
}

/** Queues an order for each id. Each request is repeated until it succeeds, because a caller must not lose an order. */
async function queueAll(system: System, ids: readonly string[]): Promise<void> {
  const remaining = ids.values()
  const call = async (): Promise<void> => {
    for (const id of remaining)
      for (;;) {
        const url = `${system.url('demo-api')}/queue?number=${id}`
        const response = await fetch(url).catch(() => null)
        await response?.body?.cancel()
        if (response?.status === 200) break
        await delay(100)
      }
  }
  await Promise.all(Array.from({ length: CONCURRENT_CALLERS }, call))
}

/**
 * Kills coordinators repeatedly, one in each interval. Three coordinators run at a time, so each has run for three
 * intervals when it is killed. Ends when the phase is over and as many were killed as required.
 */
export async function killRepeatedly(
  startNext: () => ServiceProcess,
  { kills: minimum, killEveryMs }: Pick<OrderLoadOptions, 'kills' | 'killEveryMs'>,
  phase: Readonly<FaultPhase>,
): Promise<{ kills: number; killsDuringSteps: number }> {
  const random = seededRandom()
  const running: ServiceProcess[] = [startNext(), startNext()]
  let kills = 0
  let killsDuringSteps = 0
  while (kills < minimum || !phase.isOver) {
    running.push(startNext())
    await delay(killEveryMs * (0.5 + random()))
    const victim = running.shift()
    if (victim === undefined) break
    // Waits until the coordinator has steps in flight, because killing an idle coordinator proves nothing. The time
    // limit of the wait is shorter during an outage of a backend, in which no coordinator has steps in flight.
    const waitingSince = performance.now()
    const deadlineMs = () => (phase.isBackendUnavailable ? killEveryMs : FIRST_STEP_DEADLINE_MS)
    while (!hasStepsInFlight(victim) && performance.now() - waitingSince < deadlineMs())
      await delay(20)
    await victim.stop('SIGKILL')
    kills += 1
    if (hasStepsInFlight(victim)) killsDuringSteps += 1
  }
  await Promise.all(running.map((process) => process.stop('SIGKILL')))
  return { kills, killsDuringSteps }
}

const hasStepsInFlight = (victim: ServiceProcess): boolean =>
  countLogLines(victim, 'step started') >
  countLogLines(victim, 'step completed') +
    countLogLines(victim, 'step did not complete in this attempt')
