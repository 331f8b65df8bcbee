/** Detects when nothing is left to do at the current time of the virtual clock. */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { HttpCall } from '@integration-host/coordinator/http-call'
import type { Clock } from '@integration-host/shared/process/clock'

/** The step whose message is being handled. */
export interface StepInProgress {
  readonly process: string
  step: string
}

/**
 * The number of turns of the event loop that must pass without work. The message bus delivers a message in a later
 * turn, so one turn is not enough.
 */
const QUIET_TURNS = 2

export function createWorkInFlight(clock: () => Pick<Clock, 'setTimeout'>) {
  const storage = new AsyncLocalStorage<StepInProgress>()
  const steps = new Set<StepInProgress>()
  /** The steps that wait for the clock, with the number of waits of each step. */
  const waiting = new Map<StepInProgress, number>()
  let count = 0
  /** The number of operations that were ever started. A short operation can begin and end between two turns. */
  let started = 0
  let changed = Promise.withResolvers<void>()
  const notify = (): void => {
    changed.resolve()
    changed = Promise.withResolvers()
  }

  /** Counts a promise as work until it settles. Returns the promise. */
  async function track<Result>(work: Promise<Result>): Promise<Result> {
    count += 1
    started += 1
    try {
      return await work
    } finally {
      count -= 1
      notify()
    }
  }

  /**
   * Marks the current step as waiting for the virtual clock while `wait` is pending. A waiting step does not count as
   * work.
   */
  async function waitForClock<Result>(wait: Promise<Result>): Promise<Result> {
    const step = storage.getStore()
    if (step === undefined || !steps.has(step)) return wait
    waiting.set(step, (waiting.get(step) ?? 0) + 1)
    notify()
    try {
      return await wait
    } finally {
      const others = (waiting.get(step) ?? 1) - 1
      if (others === 0) waiting.delete(step)
      else waiting.set(step, others)
    }
  }

  const isBusy = (): boolean => count > waiting.size

  return {
    track,
    /** Runs `handle` as the work of a step. Within this work, `currentStep` returns the step. */
    trackStep<Result>(step: StepInProgress, handle: () => Promise<Result>): Promise<Result> {
      steps.add(step)
      const ended = (): void => {
        steps.delete(step)
        waiting.delete(step) // the waits of a dead worker never end
      }
      return track(storage.run(step, handle).finally(ended))
    },
    currentStep: (): StepInProgress | null => storage.getStore() ?? null,
    /** Whether no step is in progress. */
    hasNoStep: (): boolean => steps.size === 0,
    waitForClock,
    /**
     * Waits on the virtual clock. Resolves with true after `ms`, and with false as soon as the step is aborted and
     * `isOver` returns true.
     */
    async pause(
      ms: number,
      abort: Parameters<HttpCall>[1]['abort'],
      isOver: () => boolean = () => true,
    ): Promise<boolean> {
      const { promise, resolve } = Promise.withResolvers<boolean>()
      const onAbort = (): void => {
        if (isOver()) resolve(false)
      }
      const timer = clock().setTimeout(() => resolve(true), ms)
      abort.watch(onAbort)
      try {
        return await waitForClock(promise)
      } finally {
        abort.unwatch(onAbort)
        timer[Symbol.dispose]()
      }
    },
    /**
     * Resolves when no work is left that could continue without the virtual clock.
     *
     * @throws {Error} names the steps in progress if none of the work ends within `limitMs` of real time.
     */
    async settled(limitMs: number): Promise<void> {
      for (let quietTurns = 0; quietTurns < QUIET_TURNS;) {
        if (isBusy()) {
          quietTurns = 0
          await changeWithin(limitMs)
        } else {
          const startedBefore = started
          await new Promise<void>((resolve) => setImmediate(resolve))
          quietTurns = started === startedBefore ? quietTurns + 1 : 0
        }
      }
    },
  }

  /** @throws {Error} if no work ends within `ms`. */
  async function changeWithin(ms: number): Promise<void> {
    const late = Promise.withResolvers<'late'>()
    const timer = setTimeout(() => late.resolve('late'), ms)
    const first = await Promise.race([changed.promise, late.promise])
    clearTimeout(timer)
    if (first === 'late') throw new Error(stillInProgress())
  }

  function stillInProgress(): string {
    const names = [...steps]
      .filter((step) => !waiting.has(step))
      .map(({ process, step }) => `${process}.${step}`)
    return names.length === 0
      ? 'the test host has work that does not end'
      : `${names.join(', ')} did not end. The clock of the test does not move timers of your own code, such as setTimeout: use step.waitFor, or a target with the reply 'no response'`
  }
}
export type WorkInFlight = ReturnType<typeof createWorkInFlight>
