/** The rounds of a step that repeats, and the progress that a step reports. */
import type { Round } from '../run/item.ts'
import { checkedInput } from '../run/input-check.ts'
import {
  isDeeperThan,
  type Json,
  MAX_DEPTH,
  normalizedJson,
  normalizedText,
} from '../run/json-normalization.ts'
import { requireMembers } from './definition.ts'
import { PROGRESS } from './step-request.ts'
import type { AnyStep, Progress } from './step.ts'

const DEFAULT_ROUNDS = 10_000
const MAX_STATE_BYTES = 65_536
const MAX_NOTE_LENGTH = 200
const STATE = { name: 'State', what: 'the state schema of the step' }

type Failure = { readonly errorClass: string; readonly error: string }

/** Returns the round after `round`, or why there is none. */
export function nextRound(
  round: number,
  state: unknown,
  { state: schema, maxRounds = DEFAULT_ROUNDS }: Pick<AnyStep, 'state' | 'maxRounds'>,
): { readonly round: Round } | Failure {
  if (schema === undefined) throw new TypeError('a step needs the option state to call repeat')
  if (round + 1 >= maxRounds)
    return {
      errorClass: 'rounds_used_up',
      error: `the step has called repeat in the last of its ${maxRounds} rounds (maxRounds)`,
    }
  const stored = normalizedJson(state)
  const bytes = Buffer.byteLength(JSON.stringify(stored))
  if (bytes > MAX_STATE_BYTES)
    return {
      errorClass: 'state_too_large',
      error: `the state has ${bytes} bytes; ${MAX_STATE_BYTES} are possible`,
    }
  if (isDeeperThan(stored, MAX_DEPTH)) return invalid([`State: may have ${MAX_DEPTH} levels`])
  const checked = checkedInput(schema, stored, STATE)
  return 'problems' in checked
    ? invalid(checked.problems)
    : { round: { number: round + 1, state: stored } }
}

/** Returns the state of a round as the step reads it, or why the step cannot read it. */
export function readState(
  round: Round,
  schema: AnyStep['state'],
): { readonly state: unknown } | Failure {
  if (schema === undefined) return { state: undefined }
  const checked = checkedInput(schema, round.state, STATE)
  return 'problems' in checked ? invalid(checked.problems) : { state: checked.input }
}

const invalid = (problems: readonly string[]): Failure => ({
  errorClass: 'state_invalid',
  error: `the state is not valid: ${problems.join('; ')}`,
})

/** Returns the progress as it is stored. `now` is epoch ms. */
export function reportOf(
  progress: Progress,
  now: number,
  redacted: (text: string) => string,
): Json {
  requireMembers(progress, PROGRESS, 'report')
  const { done, of, note } = progress
  if (!Number.isFinite(done) || !Number.isFinite(of))
    throw new RangeError('report expects the numbers done and of')
  const Note = note === undefined ? null : normalizedText(redacted(note).slice(0, MAX_NOTE_LENGTH))
  return { Done: done, Of: of, Note, At: new Date(now).toISOString() }
}
