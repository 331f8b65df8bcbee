/**
 * Numbers the attempts of a run. The number that the coordinator stores with an attempt is not unique: if an attempt
 * does not count against the limit of its step, the next attempt has the same number.
 */
import type { RunView } from '../src/contracts/runs.ts'

export type Attempt = RunView['Attempts'][number]

export interface NumberedAttempt extends Attempt {
  /** The position among all attempts of the step, counted from 1. */
  readonly number: number
  /** Whether the attempt counts against the limit of the step. A cool-down, for example, does not. */
  readonly isCounted: boolean
}

/**
 * Returns the attempts of a run with their numbers. If the response does not contain all attempts, the missing older
 * attempts are assumed to belong to the step of the first attempt in the response.
 */
export function numberedAttempts(run: RunView): readonly NumberedAttempt[] {
  const { Attempts: attempts, AttemptCount } = run
  const listed = new Set(attempts.map(({ StepName }) => StepName))
  const ofOtherSteps = run.Items.filter(({ StepName }) => !listed.has(StepName))
  const older =
    AttemptCount - attempts.length - ofOtherSteps.reduce((sum, { Attempt }) => sum + Attempt, 0)
  const first = attempts[0]?.StepName ?? ''
  // For each attempt, the next attempt of the same step.
  const later = new Map<string, Attempt>()
  const nextOf = attempts.toReversed().map((attempt) => {
    const next = later.get(attempt.StepName)
    later.set(attempt.StepName, attempt)
    return next
  })
  nextOf.reverse()
  const numbers = new Map<string, number>([[first, Math.max(0, older)]])
  return attempts.map((attempt, index) => {
    const number = (numbers.get(attempt.StepName) ?? 0) + 1
    numbers.set(attempt.StepName, number)
    return { ...attempt, number, isCounted: isCounted(run, attempt, nextOf[index]) }
  })
}

/**
 * Returns whether an attempt counts against the limit of the step. An attempt does not count if the next attempt of the
 * step has the same stored number. After an attempt that ended its round or its step, the numbers begin again.
 */
function isCounted(run: RunView, attempt: Attempt, next: Attempt | undefined): boolean {
  if (attempt.Outcome === 'repeated' || attempt.Outcome === 'completed') return true
  if (next === undefined) {
    const isDue = run.CompletedAt === null && run.StepName === attempt.StepName
    return !isDue || run.Attempt >= attempt.Attempt
  }
  // A resumed run begins again with the number 1. The next attempt may therefore have the same number although this
  // attempt counts.
  return isResumedBetween(run, attempt, next) || next.Attempt !== attempt.Attempt
}

/** Whether a person has resumed the run after one attempt and before the next one. */
export const isResumedBetween = ({ History }: RunView, one: Attempt, next: Attempt): boolean =>
  History.some(
    ({ Action, At }) => Action === 'resume' && At >= one.StartedAt && At <= next.StartedAt,
  )

/** Returns the error of an attempt without the call at its begin or at its end, which has a column of its own. */
export function withoutCall({
  Error: error,
  Request: request,
}: Pick<NumberedAttempt, 'Error' | 'Request'>): string {
  if (request === null || error === null) return error ?? ''
  const call = `${request.Method} ${request.Url} `
  if (error.startsWith(call)) return error.slice(call.length)
  const end = error.lastIndexOf(` (${call}responded with `)
  return end === -1 ? error : error.slice(0, end)
}
