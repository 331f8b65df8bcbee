/**
 * The timeline of a run: for each step a lane with the attempts and the waits between them. Only recorded facts are
 * shown. A gap after which no attempt was due by itself stays a gap.
 */
import type { RunView } from '../src/contracts/runs.ts'
import { isResumedBetween, type NumberedAttempt, numberedAttempts } from './attempts.ts'

/** `doubt` is an attempt whose worker was lost, so that its outcome and its end are not recorded. */
export type SegmentKind = 'queued' | 'completed' | 'failed' | 'doubt' | 'running' | 'wait' | 'next'

export interface Segment {
  readonly kind: SegmentKind
  /** The time in epoch milliseconds. */
  readonly from: number
  readonly until: number
  readonly text: string
}

export interface Lane {
  readonly step: string
  readonly segments: readonly Segment[]
  /** The number of attempts that are left out in the middle of the lane. */
  readonly omitted: number
  /** Why the run has not run the step, if the lane has no segments. */
  readonly without: 'copied' | 'skipped' | 'received' | 'waits' | 'failed' | 'not reached'
}

export interface Waterfall {
  readonly from: number
  /**
   * The time at which the timeline ends: the end of the run, the time of the next attempt if the run waits for it, or
   * the present time.
   */
  readonly until: number
  /** The present time if the run waits for its next attempt; otherwise `null`. */
  readonly now: number | null
  readonly lanes: readonly Lane[]
}

/** The width of the shortest bar, as a share of the drawing: about 3 pixels, so that it can still be seen. */
const SHORTEST_BAR = 0.004

/** Returns the left end and the width of the bar of a segment, from 0 to 1 of the whole timeline. */
export function barOf(
  whole: Pick<Waterfall, 'from' | 'until'>,
  { from, until }: Pick<Segment, 'from' | 'until'>,
): { readonly left: number; readonly width: number } {
  const length = whole.until - whole.from
  const width = Math.max(SHORTEST_BAR, (until - from) / length)
  return { left: Math.min((from - whole.from) / length, 1 - width), width }
}

/** If a lane has too many attempts, this many are shown at the beginning of the lane, and as many at its end. */
const SHOWN_AT_ENDS = 6
/** The shortest gap that is shown as a wait. A shorter gap is the usual time between two steps. */
const SHORTEST_WAIT_MS = 200

/** The meanings of the outcomes that say why the run waits. */
const WAITS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    credential_held: 'the company slows down',
    credential_faulted: 'waits for the company',
    http_429: 'the target asks for slower calls',
    step_waits: 'the step asked to be run again later',
    target_held: 'the target slows down or is at its limits',
  }),
)
/** The outcomes after which the coordinator makes another attempt by itself. */
const RETRIED =
  /^(?:network|no_answer|response_not_json|step_threw|step_unhandled_rejection|step_uncaught_exception|step_timeout|(?:store|broker)_unavailable|http_(?:401|408|425|5\d\d))$/

/**
 * Returns after which outcome a wait began; `null` after an outcome that no further attempt follows by itself. The
 * outcome is the only recorded reason of a wait: why it ended no earlier is not recorded. For example, its process may
 * have been paused meanwhile.
 */
function waitBegin(outcome: string): string | null {
  const meaning = WAITS.get(outcome)
  if (meaning !== undefined) return `after ${outcome} (${meaning})`
  return RETRIED.test(outcome) ? `after ${outcome}` : null
}

const NOT_RUN: ReadonlyMap<string, Lane['without']> = new Map([
  ['Copied', 'copied'],
  ['Skipped', 'skipped'],
  ['Waiting', 'waits'],
  ['Failed', 'failed'],
])

/** Returns the timeline of a run as of `now` (epoch ms). */
export function waterfall(run: RunView, now: number): Waterfall {
  const all = numberedAttempts(run)
  const byStep = Map.groupBy(all, ({ StepName }) => StepName)
  const steps = [...new Set([...run.Steps, ...byStep.keys(), run.StepName])]
  const ended = run.CompletedAt === null ? null : Date.parse(run.CompletedAt)
  const from = Date.parse(run.CreatedAt)
  const next = run.NextAttemptAt === null ? 0 : Date.parse(run.NextAttemptAt)
  const until = Math.max(ended ?? Math.max(now, next), from + 1)
  const first = run.Attempts[0]
  return {
    from,
    until,
    now: ended === null && next > now ? now : null,
    lanes: steps.map((step) => {
      const attempts = byStep.get(step) ?? []
      const omitted = Math.max(0, attempts.length - 2 * SHOWN_AT_ENDS)
      const shown =
        omitted === 0
          ? attempts
          : [...attempts.slice(0, SHOWN_AT_ENDS), ...attempts.slice(-SHOWN_AT_ENDS)]
      const segments: Segment[] = []
      if (step === (first?.StepName ?? run.StepName)) {
        const begun = first === undefined ? queuedUntil(run, until) : Date.parse(first.StartedAt)
        // If the response does not contain all attempts, older attempts may have run before the first one. In this
        // case, the time before the first attempt is not shown as a wait.
        if (begun > from && run.AttemptCount === run.Attempts.length)
          segments.push(segment('queued', from, begun, 'queued'))
      }
      for (const [index, attempt] of shown.entries()) {
        const begun = Date.parse(attempt.StartedAt)
        const before = shown[index - 1]
        const isAfterOmitted = omitted > 0 && index === SHOWN_AT_ENDS
        if (before !== undefined && before.FinishedAt !== null && !isAfterOmitted) {
          const gap = Date.parse(before.FinishedAt)
          const cause = isResumedBetween(run, before, attempt) ? null : waitBegin(before.Outcome)
          if (cause !== null && begun - gap > SHORTEST_WAIT_MS)
            segments.push(segment('wait', gap, begun, `waited ${cause}`))
        }
        segments.push(attemptSegment(attempt, latestEnd(run, all[all.indexOf(attempt) + 1])))
      }
      if (step === run.StepName && ended === null)
        segments.push(...dueSegments(run, shown.at(-1), now))
      const item = run.Items.find(({ StepName }) => StepName === step)
      const without =
        NOT_RUN.get(item?.Status ?? '') ??
        // An event has a sender, and no attempts.
        (item?.Sender === undefined ? 'not reached' : 'received')
      return { step, segments, omitted, without }
    }),
  }
}

/** Returns the event or the change that the run waits for, such as `the event approved`; `null` if it waits for none. */
export function placeOf({ Status, WaitingFor }: Pick<RunView, 'Status' | 'WaitingFor'>) {
  const [, kind, name] = /^(event|change):(.+)$/.exec(WaitingFor ?? '') ?? []
  return Status === 'Waiting' && kind !== undefined ? `the ${kind} ${name}` : null
}

/**
 * Returns the attempt that is in flight at the current step of the run. If no attempt is in flight, returns the wait
 * until the next attempt; empty if the run does not wait for one.
 */
function dueSegments(
  run: RunView,
  last: NumberedAttempt | undefined,
  now: number,
): readonly Segment[] {
  if (run.StartedAt !== null)
    return [
      segment(
        'running',
        Date.parse(run.StartedAt),
        now,
        `attempt ${(last?.number ?? 0) + 1}: in flight`,
      ),
    ]
  const next = run.NextAttemptAt === null ? 0 : Date.parse(run.NextAttemptAt)
  if (next <= now || run.Status === 'Queued') return []
  const cause = waitBegin(run.ErrorClass ?? '')
  const text = `waits for ${placeOf(run) ?? 'the next attempt'}${cause === null ? '' : ` ${cause}`}`
  return [segment('next', Date.parse(last?.FinishedAt ?? run.UpdatedAt), next, text)]
}

/**
 * Returns until when a run without recorded attempts has waited for its first attempt. An attempt is not recorded if
 * the step has called nothing, for example because of a cool-down.
 */
const queuedUntil = ({ Status, StartedAt, UpdatedAt }: RunView, until: number): number =>
  Status === 'Queued' ? until : Date.parse(StartedAt ?? UpdatedAt)

/** Returns the latest time at which a lost worker may have ended its attempt. */
const latestEnd = ({ StartedAt, UpdatedAt }: RunView, next: NumberedAttempt | undefined): number =>
  Date.parse(next?.StartedAt ?? StartedAt ?? UpdatedAt)

const segment = (kind: SegmentKind, from: number, until: number, text: string): Segment => ({
  kind,
  from,
  until: Math.max(from, until),
  text,
})

/** The outcomes of attempts that did what they were made for. An undo takes back what the step has done. */
const SUCCESSES: ReadonlySet<string> = new Set(['completed', 'repeated', 'undone'])

function attemptSegment(attempt: NumberedAttempt, openUntil: number): Segment {
  const { Outcome, ResponseStatus, FinishedAt, StartedAt } = attempt
  const from = Date.parse(StartedAt)
  const status = ResponseStatus === null ? '' : ` (${ResponseStatus})`
  const text = `attempt ${attempt.number}: ${Outcome}${status}${attempt.isCounted ? '' : ', not counted'}`
  if (FinishedAt === null)
    return segment('doubt', from, openUntil, `${text}, its end is not recorded`)
  const kind = SUCCESSES.has(Outcome) ? 'completed' : 'failed'
  return segment(kind, from, Date.parse(FinishedAt), text)
}
