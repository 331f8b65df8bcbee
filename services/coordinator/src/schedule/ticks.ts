/**
 * Decides which times of a schedule begin runs. These functions are pure: `now` is the time of the transaction source.
 */
import { cronTimes } from './cron.ts'
import type { ScheduleTiming } from './schedule.ts'
import type { ScheduleRow } from './schedule-store.ts'

export interface Ticks {
  /** The scheduled times that start runs now, oldest first, in epoch ms. */
  readonly due: readonly number[]
  /** The earliest scheduled time that is not decided yet, in epoch ms. This time may already have passed. */
  readonly nextAt: number
}

/** With `catchUp: 'none'`, a scheduled time that passed more than this many milliseconds ago counts as missed. */
const MISSED_AFTER_MS = 60_000
/** The maximum number of missed times for which `catchUp: 'all'` starts runs. Older missed times are skipped. */
export const MAX_CAUGHT_UP = 500
/** The maximum number of scheduled times whose runs are queued in one database transaction. */
const BATCH = 50

/** Returns the scheduled times for which a due schedule starts runs, from `nextAt`: the earliest undecided one, epoch ms. */
export function dueTicks(timing: ScheduleTiming, nextAt: number, now: number): Ticks {
  const cron = cronTimes(timing.cron, timing.timeZone)
  const following = { due: [], nextAt: cron.next(now) }
  if (timing.catchUp === 'all') {
    const missed = cron.latest(nextAt, now, MAX_CAUGHT_UP)
    // With `each: 'company'`, the runs of one time are queued in several database transactions. Therefore each call
    // decides about only one time.
    const due = missed.slice(0, timing.each === 'company' ? 1 : BATCH)
    return { due, nextAt: missed[due.length] ?? following.nextAt }
  }
  const [latest] = cron.latest(nextAt, now, 1)
  if (latest === undefined) return following
  if (timing.catchUp === 'none' && now - latest > MISSED_AFTER_MS) return following
  return { ...following, due: [latest] }
}

/** Returns the first time of a schedule after `now`, in epoch ms. */
export const firstTick = ({ cron, timeZone }: ScheduleTiming, now: number): number =>
  cronTimes(cron, timeZone).next(now)

/**
 * Returns whether the stored next time of a schedule is later than its next time `next`, which has not fired. An earlier
 * release, or one with other rules of a time zone, may have stored it.
 */
export const isOverlooked = (
  next: number,
  { NextAt, LastAt }: Pick<ScheduleRow, 'NextAt' | 'LastAt'>,
): boolean => next < Date.parse(NextAt) && (LastAt === null || next > Date.parse(LastAt))

/** Returns the next `count` times after `now`, in epoch ms. */
export function nextTicks(
  { cron, timeZone }: ScheduleTiming,
  now: number,
  count: number,
): number[] {
  const times = cronTimes(cron, timeZone)
  const next: number[] = []
  for (let at = now; next.length < count; next.push(at)) at = times.next(at)
  return next
}

/**
 * Returns the jitter in seconds: the time from the queueing of a run to its start, less than `jitterSeconds`. The
 * jitter is always the same for one company, so that the time between two runs of the company does not vary.
 */
export function delaySeconds({ jitterSeconds }: ScheduleTiming, of: string): number {
  if (jitterSeconds === 0) return 0
  // The FNV-1a hash gives different delays to realms that differ in one digit.
  let hash = 0x811c9dc5
  for (let index = 0; index < of.length; index += 1)
    hash = Math.imul(hash ^ of.charCodeAt(index), 0x01000193) >>> 0
  hash = Math.imul(hash ^ (hash >>> 15), 0x85ebca6b) >>> 0
  return ((hash ^ (hash >>> 13)) >>> 0) % jitterSeconds
}
