/** The places at which a run waits for an event: `.event(name, options)` of a process. */
import type { z } from 'zod'
import type { EventPlace } from '../run/events.ts'
import type { StepOutcome } from '../run/progress.ts'
import type { ChangeSettings } from './change-place.ts'
import {
  isSchema,
  type ProcessDefinition,
  requireMembers,
  requirePlaceName,
  requireTime,
} from './definition.ts'
import type { Json } from '../run/json-normalization.ts'
import { type AskOptions, type Choices, choicesOf, storedAsk } from './ask.ts'
import { type EnteredStep, enteredMembers, placeFailed } from './entered.ts'
import type { AnyStep, ProcessSettings } from './step.ts'
import { thrownText } from './thrown-text.ts'

/** The options of every wait. */
export interface WaitOptions {
  /** The longest time in seconds for which a run waits, at most a year. Default: it waits without end. */
  readonly timeoutSeconds?: number
  /**
   * What becomes of a run whose time is over. `fail` (the default): it fails as `event_timeout`. `continue`: it goes on,
   * and the data of the event is `null`.
   */
  readonly onTimeout?: 'fail' | 'continue'
}

/** The options of an event. */
export interface EventOptions<Data extends z.ZodType = z.ZodType<Json>> extends WaitOptions {
  /**
   * The schema of the data of the event. It is checked when the event arrives: an event whose data does not match is
   * rejected, and nothing is stored. Later steps get the data that the schema returns. Default: any JSON.
   */
  readonly data?: Data
}

/** A place at which runs wait, as a definition stores it. */
export interface EventSettings {
  /** The object for whose change runs wait; absent if they wait for an event that a client sends. */
  readonly change?: ChangeSettings
  readonly data: z.ZodType | null
  readonly timeoutMs: number | null
  readonly onTimeout: 'fail' | 'continue'
  /** Set if a person decides: what the person is shown, and what can be chosen. */
  readonly decision?: { readonly ask: (entered: never) => unknown; readonly choices: Choices }
}

const MAX_TIMEOUT_SECONDS = 366 * 86_400
const MEMBERS = new Set<string>([
  'data',
  'timeoutSeconds',
  'onTimeout',
  'when',
  'ask',
  'choices',
] satisfies (keyof GivenOptions)[])
/** The types of a chain add `when` and `ask`, because they know what these get. */
type GivenOptions = EventOptions & Pick<AnyStep, 'when'> & AskOptions<never, string>

/** Returns the place as it is stored in the definition. @throws {TypeError} if the name or an option is not valid */
export function eventStep(process: string, name: string, options: GivenOptions): AnyStep {
  requirePlaceName(process, name, 'an event')
  const what = `event ${name} of ${process}`
  requireMembers(options, MEMBERS, what)
  const { data = null, when, ask, choices } = options
  if (data !== null && !isSchema(data))
    throw new TypeError(`data of ${what} must be a schema of zod 4`)
  const times = requireTimeout(options, what)
  if (ask !== undefined && typeof ask !== 'function')
    throw new TypeError(`ask of ${what} must be a function`)
  if (choices !== undefined && ask === undefined)
    throw new TypeError(`choices of ${what} has no effect without ask`)
  const event: EventSettings = {
    data,
    ...times,
    ...(ask !== undefined && { decision: { ask, choices: choicesOf(data, choices, what) } }),
  }
  // The worker waits at the place instead of calling the function.
  return Object.assign(() => {}, { event, ...(when !== undefined && { when }) })
}

/** Returns the checked options of a wait. @throws {TypeError} if they are not valid */
export function requireTimeout(
  { timeoutSeconds, onTimeout = 'fail' }: WaitOptions,
  what: string,
): Pick<EventSettings, 'timeoutMs' | 'onTimeout'> {
  requireTime(timeoutSeconds, MAX_TIMEOUT_SECONDS, `timeoutSeconds of ${what}`)
  if (onTimeout !== 'fail' && onTimeout !== 'continue')
    throw new TypeError(`onTimeout of ${what} must be 'fail' or 'continue'`)
  if (onTimeout === 'continue' && timeoutSeconds === undefined)
    throw new TypeError(`onTimeout of ${what} has no effect without timeoutSeconds`)
  return { timeoutMs: timeoutSeconds === undefined ? null : timeoutSeconds * 1_000, onTimeout }
}

/** Returns the outcome of a run that enters the place: it waits. If `ask` throws, the run fails. */
export function enterEvent(
  { timeoutMs, decision }: EventSettings,
  entered: EnteredStep,
  settings: ProcessSettings,
): StepOutcome {
  if (decision === undefined) return { kind: 'parked', timeoutMs, ask: null }
  try {
    const ask = storedAsk(
      (decision.ask as (given: unknown) => unknown)(enteredMembers(entered, settings)),
    )
    return { kind: 'parked', timeoutMs, ask: entered.process.bound?.redaction?.json(ask) ?? ask }
  } catch (error) {
    return placeFailed(entered, `ask: ${thrownText(error)}`)
  }
}

/** Returns the places of a process at which runs wait. */
export const eventPlaces = ({
  name,
  stepNames,
  steps,
  undoesFailure,
}: ProcessDefinition): EventPlace[] =>
  stepNames.flatMap((place, index) => {
    const event = steps.get(place)?.event
    if (event === undefined) return []
    const kind = event.change === undefined ? 'event' : 'change'
    const onTimeout = event.onTimeout === 'fail' && undoesFailure ? 'undo' : event.onTimeout
    return [{ kind, process: name, place, next: stepNames[index + 1] ?? null, onTimeout }]
  })
