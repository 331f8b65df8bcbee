/**
 * Admits the calls of this worker to targets with limits.
 *
 * T1  A call is sent only at a time, and in a slot, that the transaction source has reserved for it. The source counts
 *     the calls of all replicas, so the limits hold over all of them.
 * T2  For each target, one call at a time requests a reservation, in the order of the calls. So a busy target occupies
 *     at most two connections to the database: one that reserves and one that releases.
 * T3  A call waits for its time inside its step, but not longer than `waitUntil`. A call that would have to wait longer
 *     is deferred, and holds no reservation meanwhile.
 * T4  A slot is released when its call has ended, or when the step is aborted before the call was sent. The slot of a
 *     lost worker expires, but not before the time limit of its call has passed.
 */
import { batched } from '@integration-host/shared/batching/batched'
import { hasCode } from '@integration-host/shared/errors'
import type { Clock } from '@integration-host/shared/process/clock'
import type { TargetCalls, TargetKey, TargetLimits } from '../transaction/target-calls.ts'
import { createCoolDowns } from './cool-downs.ts'
import type { StepAbort } from './step-abort.ts'

export interface TargetLimiter {
  /** Waits until the call may be sent. Returns how the wait ended. */
  admit(call: LimitedCall): Promise<Admission>
  /** Starts a cool-down of a target for all replicas. Best effort: without it, the other replicas get a 429 as well. */
  coolDown(target: TargetKey, ms: number): Promise<void>
}

export interface LimitedCall {
  readonly target: TargetKey
  readonly limits: TargetLimits
  /** The time limit of the call in milliseconds. */
  readonly timeoutMs: number
  /** The wait for the time of the call ends at this time (epoch ms). */
  readonly waitUntil: number
  readonly abort: StepAbort
}

export type Admission =
  /** The call may be sent now. `end` must be called when the call has ended; it never rejects. */
  | { readonly kind: 'admitted'; readonly end: () => Promise<void> }
  /** The call cannot be sent in time: the step should try again after `delayMs`. */
  | { readonly kind: 'deferred'; readonly delayMs: number }
  /** The step may send no further call. */
  | { readonly kind: 'aborted' }
  /** The transaction source is not available. */
  | { readonly kind: 'unavailable' }

export interface TargetLimiterDeps {
  readonly source: TargetCalls
  /** Used for durations only. */
  readonly clock: Pick<Clock, 'now' | 'setTimeout'>
  /** Gets each wait of a call for the clock, and returns it. Default: returns it without doing anything. */
  readonly waitForClock?: WaitForClock | undefined
}

/** Observes a wait for the clock. A test that moves the clock itself must know that the step is not busy meanwhile. */
export type WaitForClock = <Result>(wait: Promise<Result>) => Promise<Result>

/** The calls of this worker to one target. */
interface Line {
  /** Whether a call has its turn to request a reservation. */
  isTaken: boolean
  /** The calls that wait for their turn, in their order. Each function gives its call the turn. */
  readonly waiting: Set<() => void>
  readonly release: (slot: string) => Promise<void>
  /** Ends the pause of the call that waits for a free slot, if there is one. */
  onRelease: () => void
}

type Reservation =
  | { readonly kind: 'reserved'; readonly waitMs: number; readonly slot: string }
  | Exclude<Admission, { readonly kind: 'admitted' }>

export function createTargetLimiter({
  source,
  clock,
  waitForClock = (wait) => wait,
}: TargetLimiterDeps): TargetLimiter {
  const { now } = clock
  const lines = new Map<string, Line>()
  /** The steps that were deferred because the next call to their target was too far away. */
  const deferrals = createCoolDowns(now)

  function lineOf(target: TargetKey): Line {
    const key = keyOf(target)
    const known = lines.get(key)
    if (known !== undefined) return known
    const releaseAll = batched<string, null>(
      async (slots) => {
        await source.releaseCalls(target, slots)
        return slots.map(() => null)
      },
      { retries: false },
    )
    const line: Line = {
      isTaken: false,
      waiting: new Set(),
      async release(slot) {
        // A slot that cannot be released expires by itself.
        await releaseAll(slot).catch(() => {})
        line.onRelease()
      },
      onRelease() {},
    }
    lines.set(key, line)
    return line
  }

  /**
   * Resolves after `ms` milliseconds, or earlier when new calls are blocked. `onStart` gets the function that ends the
   * pause.
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
        // A timer may fire a fraction of a millisecond early.
        const timer = clock.setTimeout(end, Math.ceil(ms) + 1)
        abort.watch(end)
        onStart(end)
      }),
    )

  /** Waits for the turn of the call. Resolves with `false` if the call must not wait any longer. */
  async function takeTurn(line: Line, { waitUntil, abort }: LimitedCall): Promise<boolean> {
    if (!line.isTaken) return (line.isTaken = true)
    let hasTurn = false
    let giveTurn = (): void => {}
    await pause(Math.max(waitUntil - now(), 0), abort, (end) => {
      giveTurn = () => {
        hasTurn = true
        end()
      }
      line.waiting.add(giveTurn)
    })
    line.waiting.delete(giveTurn)
    return hasTurn
  }
  function endTurn(line: Line): void {
    const [giveTurn] = line.waiting
    if (giveTurn === undefined) line.isTaken = false
    else {
      line.waiting.delete(giveTurn)
      giveTurn()
    }
  }

  /** Requests a reservation until there is one, or until the call must not wait any longer. */
  async function reserve(line: Line, call: LimitedCall): Promise<Reservation> {
    const { target, limits, timeoutMs, waitUntil, abort } = call
    const key = keyOf(target)
    // The value of `timeoutMs` may come from an option of the call, and such an option is not checked.
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
      await pause(Math.min(POLL_MS, maxWaitMs), abort, (end) => (line.onRelease = end))
    }
    return { kind: 'aborted' }
  }

  return {
    async admit(call) {
      const { abort, limits } = call
      const line = lineOf(call.target)
      while (!abort.areNewCallsBlocked && (await takeTurn(line, call))) {
        let reservation: Reservation
        try {
          reservation = await reserve(line, call)
        } catch (error) {
          if (hasCode(error, 'store_unavailable')) return { kind: 'unavailable' }
          throw error
        } finally {
          endTurn(line)
        }
        if (reservation.kind !== 'reserved') return reservation
        const { waitMs, slot } = reservation
        const end = (): Promise<void> =>
          limits.concurrent === null ? Promise.resolve() : line.release(slot)
        const sendAt = now() + waitMs
        if (waitMs > 0 && !abort.areNewCallsBlocked) await pause(waitMs, abort)
        if (abort.areNewCallsBlocked) {
          await end()
          return { kind: 'aborted' }
        }
        // The call is late if this process was blocked. If late calls were sent, several calls would be sent at the
        // same time.
        if (now() - sendAt <= MAX_LATE_MS) return { kind: 'admitted', end }
        await end()
      }
      return abort.areNewCallsBlocked
        ? { kind: 'aborted' }
        : { kind: 'deferred', delayMs: FULL_DELAY_MS }
    },
    coolDown: (target, ms) => source.coolDownTarget(target, ms).catch(() => {}),
  }
}

const keyOf = ({ Process, Target }: TargetKey): string => `${Process}/${Target}`

/**
 * The time from the end of a call's time limit until its slot expires. It is longer than the time limit of a statement,
 * because the call is sent only after the response to the statement that reserved its slot.
 */
export const SLOT_GRACE_MS = 15_000
/** The time limit of a step, which ends its calls. */
const MAX_HOLD_MS = 1_500_000
// A call that waits for a slot polls at this interval, because another replica may have released a slot.
const POLL_MS = 100
// How long a step that found no free slot waits before it is tried again. It can be short, because the step has waited
// inside its attempt before.
const FULL_DELAY_MS = 1_000
const MAX_LATE_MS = 100
const MIN_SPACING_MS = 100
