/**
 * Admits the calls of this worker to targets with limits.
 *
 * T1  A call is sent only at a time, and in a slot, that the transaction source has reserved for it. The source counts
 *     the calls of all replicas, so the limits apply to all of them together.
 * T2  For each target, one call at a time requests a reservation, in the order of the calls. So a busy target occupies
 *     at most two connections to the database: one that reserves and one that releases.
 * T3  A call waits for its reserved time inside its step, at most until `waitUntil`. A call that would have to wait
 *     longer is deferred: it gets no reservation, and its step is tried again later.
 * T4  A slot is released when its call has ended, or when the step is aborted before the call was sent. The slot of a
 *     lost worker expires, but not before the time limit of its call has passed.
 */
import { batched } from '@integration-host/shared/batching'
import { hasCode } from '@integration-host/shared/errors'
import type { Clock } from '@integration-host/shared/process/clock'
import type { TargetCalls, TargetKey, TargetLimits } from '../run/target-calls.ts'
import type { StepAbort } from './step-abort.ts'

export interface LimitedCall {
  readonly target: TargetKey
  readonly limits: TargetLimits
  /** The time limit of the call in milliseconds. */
  readonly timeoutMs: number
  /** The latest time (epoch ms) until which the call waits for its target. */
  readonly waitUntil: number
  readonly abort: StepAbort
}

export type Admission =
  /** The call may be sent now. `end` must be called when the call has ended. The promise of `end` never rejects. */
  | { readonly kind: 'admitted'; readonly end: () => Promise<void> }
  /** The call cannot be sent in time. The step should try again after `delayMs`. */
  | { readonly kind: 'deferred'; readonly delayMs: number }
  /** The step was aborted, or may send no further calls, so the call must not be sent. */
  | { readonly kind: 'aborted' }
  /** The transaction source is not available. */
  | { readonly kind: 'unavailable' }

export interface TargetLimiterDeps {
  readonly source: TargetCalls
  /** A clock that is used for durations only. */
  readonly clock: Pick<Clock, 'now' | 'setTimeout'>
  /**
   * Called with each promise that resolves when a timer of the clock fires. The call awaits the promise that this
   * function returns. Default: returns the given promise.
   */
  readonly waitForClock?: WaitForClock | undefined
}

/**
 * Gets a promise that resolves when a timer of the clock fires, and returns the promise that the call awaits instead. A
 * test passes such a function to detect that a step waits only for the clock, which the test must then move.
 */
export type WaitForClock = <Result>(wait: Promise<Result>) => Promise<Result>

/** The queue of the calls that this worker makes to one target. */
interface Queue {
  /** Whether a call of this queue is requesting a reservation. Only one call at a time may do so. */
  isTaken: boolean
  /**
   * The calls that wait until they may request a reservation, in the order in which they arrived. Calling a function
   * lets its call continue.
   */
  readonly waiting: Set<() => void>
  readonly release: (slot: string) => Promise<void>
  /** Wakes the call that waits for a free slot, if there is one. */
  onRelease: () => void
}

type Reservation =
  | { readonly kind: 'reserved'; readonly waitMs: number; readonly slot: string }
  | Exclude<Admission, { readonly kind: 'admitted' }>

export type TargetLimiter = ReturnType<typeof createTargetLimiter>

export function createTargetLimiter({
  source,
  clock,
  waitForClock = (wait) => wait,
}: TargetLimiterDeps) {
  const { now } = clock
  const queues = new Map<string, Queue>()
  /**
   * The start times of deferred steps. A step is deferred if its call would have to wait for its target longer than
   * `waitUntil`.
   */
  const deferrals = createDeferrals(now)

  function queueOf(target: TargetKey): Queue {
    const key = keyOf(target)
    const known = queues.get(key)
    if (known !== undefined) return known
    const releaseAll = batched<string, null>(
      async (slots) => {
        await source.releaseCalls(target, slots)
        return slots.map(() => null)
      },
      { retries: false },
    )
    const queue: Queue = {
      isTaken: false,
      waiting: new Set(),
      async release(slot) {
        // If releasing a slot fails, the slot expires later.
        await releaseAll(slot).catch(() => {})
        queue.onRelease()
      },
      onRelease() {},
    }
    queues.set(key, queue)
    return queue
  }

  /**
   * Resolves after `ms` milliseconds, or earlier if new calls are blocked. `onStart` gets a function that ends the
   * pause early.
   */
  const pause = (
    ms: number,
    abort: StepAbort,
    onStart: (end: () => void) => void = () => {},
  ): Promise<void> =>
    waitForClock(
      new Promise<void>((resolve) => {
        const end = (): void => {
          timer[Symbol.dispose]()
          abort.unwatch(end)
          resolve()
        }
        // The time is compared with a tolerance, because a timer may fire a fraction of a millisecond early.
        const timer = clock.setTimeout(end, Math.ceil(ms) + 1)
        abort.watch(end)
        onStart(end)
      }),
    )

  /** Waits until the call may request a reservation. Resolves with `false` if the call must not wait any longer. */
  async function takeTurn(queue: Queue, { waitUntil, abort }: LimitedCall): Promise<boolean> {
    if (!queue.isTaken) return (queue.isTaken = true)
    let hasTurn = false
    let giveTurn = (): void => {}
    await pause(Math.max(waitUntil - now(), 0), abort, (end) => {
      giveTurn = () => {
        hasTurn = true
        end()
      }
      queue.waiting.add(giveTurn)
    })
    queue.waiting.delete(giveTurn)
    return hasTurn
  }
  function endTurn(queue: Queue): void {
    const [giveTurn] = queue.waiting
    if (giveTurn === undefined) queue.isTaken = false
    else {
      queue.waiting.delete(giveTurn)
      giveTurn()
    }
  }

  /** Requests reservations until one succeeds, or until the call must not wait any longer. */
  async function reserve(queue: Queue, call: LimitedCall): Promise<Reservation> {
    const { target, limits, timeoutMs, waitUntil, abort } = call
    const key = keyOf(target)
    // `timeoutMs` may have any value, because options of a call are not checked.
    const holdMs = (timeoutMs > 0 ? Math.min(timeoutMs, MAX_HOLD_MS) : 0) + SLOT_GRACE_MS
    while (!abort.areNewCallsBlocked) {
      const delayMs = deferrals.delayOf(key)
      if (delayMs !== null) return { kind: 'deferred', delayMs }
      const maxWaitMs = Math.max(waitUntil - now(), 0)
      const slot = crypto.randomUUID()
      const result = await source.reserveCall({ ...target, limits, slot, maxWaitMs, holdMs })
      if (result.kind === 'reserved') return { ...result, slot }
      if (result.kind === 'later') {
        const spacingMs = Math.max(limits.intervalMs, MIN_SPACING_MS)
        return { kind: 'deferred', delayMs: deferrals.start(key, result.waitMs, spacingMs) }
      }
      if (maxWaitMs === 0) return { kind: 'deferred', delayMs: FULL_DELAY_MS }
      await pause(Math.min(POLL_MS, maxWaitMs), abort, (end) => (queue.onRelease = end))
    }
    return { kind: 'aborted' }
  }

  return {
    /** Waits until the call may be sent. Returns how the wait ended. */
    async admit(call: LimitedCall): Promise<Admission> {
      const { abort, limits } = call
      const queue = queueOf(call.target)
      while (!abort.areNewCallsBlocked && (await takeTurn(queue, call))) {
        let reservation: Reservation
        try {
          reservation = await reserve(queue, call)
        } catch (error) {
          if (hasCode(error, 'store_unavailable')) return { kind: 'unavailable' }
          throw error
        } finally {
          endTurn(queue)
        }
        if (reservation.kind !== 'reserved') return reservation
        const { waitMs, slot } = reservation
        const end = (): Promise<void> =>
          limits.concurrent === null ? Promise.resolve() : queue.release(slot)
        const sendAt = now() + waitMs
        if (waitMs > 0 && !abort.areNewCallsBlocked) await pause(waitMs, abort)
        if (abort.areNewCallsBlocked) {
          await end()
          return { kind: 'aborted' }
        }
        // This OS process was blocked, so the call is late. It is not sent now, because all late calls would be sent at
        // the same time.
        if (now() - sendAt <= MAX_LATE_MS) return { kind: 'admitted', end }
        await end()
      }
      return abort.areNewCallsBlocked
        ? { kind: 'aborted' }
        : { kind: 'deferred', delayMs: FULL_DELAY_MS }
    },
    /**
     * Starts a cool-down of a target for all replicas. A failure is ignored: the other replicas then get a 429 as well.
     */
    coolDown: (target: TargetKey, ms: number): Promise<void> =>
      source.coolDownTarget(target, ms).catch(() => {}),
  }
}

const keyOf = ({ Process, Target }: TargetKey): string => `${Process}/${Target}`

/**
 * A slot expires this long after the time limit of its call. The value exceeds the time limit of an SQL statement,
 * because a call is sent only after the statement that reserved its slot has returned.
 */
export const SLOT_GRACE_MS = 15_000
/**
 * The maximum time limit of a call. It equals the maximum time limit of a step, because the calls of a step end with
 * the step.
 */
const MAX_HOLD_MS = 1_500_000
// The polling interval of a call that waits for a slot. The call polls because another replica may have released a
// slot.
const POLL_MS = 100
// The time after which a step that found no free slot is tried again. It may be short, because the step has already
// waited inside its attempt.
const FULL_DELAY_MS = 1_000
const MAX_LATE_MS = 100
const MIN_SPACING_MS = 100

/**
 * The start times of deferred steps, for each target. `start` is called when a step cannot wait until the next possible
 * call to its target. Until the time of that call, `delayOf` returns the delays of further steps: each delay is
 * `spacingMs` longer than the previous one. After that time, `delayOf` returns `null`.
 */
function createDeferrals(now: () => number) {
  const schedules = new Map<string, { until: number; nextAt: number; readonly spacingMs: number }>()
  const next = (schedule: { nextAt: number; readonly spacingMs: number }): number => {
    const delayMs = schedule.nextAt - now()
    schedule.nextAt += schedule.spacingMs
    return delayMs
  }
  return {
    start(key: string, waitMs: number, spacingMs: number): number {
      for (const [other, { nextAt }] of schedules) if (nextAt <= now()) schedules.delete(other)
      const schedule = schedules.get(key) ?? { until: 0, nextAt: 0, spacingMs }
      schedule.until = Math.max(schedule.until, now() + waitMs)
      schedule.nextAt = Math.max(schedule.until, schedule.nextAt)
      schedules.set(key, schedule)
      return next(schedule)
    },
    delayOf(key: string): number | null {
      const schedule = schedules.get(key)
      return schedule === undefined || schedule.until <= now() ? null : next(schedule)
    },
  }
}
