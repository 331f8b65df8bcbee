/** The options `ask` and `choices` of an event: what a person is shown who decides, and what this person can choose. */
import type { DecisionAsk, DecisionChoices } from '@integration-host/shared/contracts/decision'
import { visibleText } from '@integration-host/shared/contracts/text'
import { z } from 'zod'

/** What a person is shown who decides about an event. The page shows these values, and no other data of the run. */
export interface Ask {
  /** The question, at most 200 characters. A longer text is cut off. */
  readonly title: string
  /** At most 20 facts with their names. A text is cut off after 1,000 characters. */
  readonly facts?: Readonly<Record<string, string | number | boolean | null>>
}

/**
 * The options of an event about which a person decides. The data of the event must be an object: one member has the
 * choice, `note` may have a text, and every other member must be optional.
 */
export interface AskOptions<Given, Member extends string> {
  /**
   * Returns what the person is shown. It is called when the run gets to the event, and may only compute. If it throws,
   * the run fails as `step_threw`.
   */
  readonly ask?: (entered: Given) => Ask
  /**
   * The member of the data that has the choice: a boolean, or an enum with a button for each of its values. Default: the
   * only boolean of the data.
   */
  readonly choices?: Member
}

/** What a person can choose, without the name of the event. */
export type Choices = Omit<DecisionChoices, 'Event'>

const MAX_CHOICES = 20
const MAX_CHOICE_LENGTH = 100
const MAX_TITLE = 200
const MAX_FACTS = 20
const MAX_NAME = 100
const MAX_VALUE = 1_000
const NOTE = 'note'

/** @throws {TypeError} if a person cannot decide about the data with one choice and a note */
export function choicesOf(
  data: z.ZodType | null,
  member: string | undefined,
  what: string,
): Choices {
  if (!(data instanceof z.ZodObject))
    throw new TypeError(`ask of ${what} needs data: an object with the member that is chosen`)
  const shape = new Map(Object.entries<z.ZodType>(data.shape))
  const booleans = [...shape].filter(([, schema]) => schema instanceof z.ZodBoolean)
  const chosen = member ?? (booleans.length === 1 ? booleans[0]?.[0] : undefined)
  const values = valuesOf(chosen === undefined ? undefined : shape.get(chosen))
  if (chosen === undefined || values === null)
    throw new TypeError(
      `choices of ${what} must name a boolean or an enum of text in the data; a single boolean needs no choices`,
    )
  if (
    values.length > MAX_CHOICES ||
    values.some((value) => typeof value === 'string' && value.length > MAX_CHOICE_LENGTH)
  )
    throw new TypeError(
      `choices of ${what}: at most ${MAX_CHOICES} values of at most ${MAX_CHOICE_LENGTH} characters`,
    )
  for (const [name, schema] of shape)
    if (name !== chosen && name !== NOTE && !schema.isOptional())
      throw new TypeError(
        `data of ${what}: ${name} must be optional, because the person decides only about ${chosen}`,
      )
  const note = shape.get(NOTE)
  if (note !== undefined && !note.safeParse('a note').success && !note.safeParse('').success)
    throw new TypeError(`data of ${what}: ${NOTE} must accept a text`)
  return { Member: chosen, Choices: values, HasNote: note !== undefined }
}

/** Returns the values of a boolean or of an enum of text; `null` for another schema. */
function valuesOf(schema: z.ZodType | undefined): Choices['Choices'] | null {
  if (schema instanceof z.ZodBoolean) return [true, false]
  if (!(schema instanceof z.ZodEnum)) return null
  const values: unknown[] = schema.options
  return values.every((value) => typeof value === 'string') ? values : null
}

/** Returns what `ask` has returned in the form in which it is stored. @throws {TypeError} if it is not an {@link Ask} */
export function storedAsk(asked: unknown): DecisionAsk {
  if (asked instanceof Promise) asked.catch(() => {})
  if (typeof asked !== 'object' || asked === null || asked instanceof Promise)
    throw new TypeError('ask must return an object with a title, and not a promise')
  const { title, facts = {} } = asked as Readonly<Record<string, unknown>>
  if (typeof title !== 'string' || visibleText(title, MAX_TITLE) === '')
    throw new TypeError('the title must be a text')
  if (typeof facts !== 'object' || facts === null || Array.isArray(facts))
    throw new TypeError('facts must be an object')
  const named = Object.entries(facts)
  if (named.length > MAX_FACTS)
    throw new TypeError(`there are ${named.length} facts; ${MAX_FACTS} are possible`)
  return {
    title: visibleText(title, MAX_TITLE),
    facts: Object.fromEntries(
      named.map(([name, value]) => [visibleText(name, MAX_NAME), storedFact(name, value)]),
    ),
  }
}

function storedFact(name: string, value: unknown): DecisionAsk['facts'][string] {
  if (typeof value === 'string') return visibleText(value, MAX_VALUE)
  if (value === null || typeof value === 'boolean' || Number.isFinite(value))
    return value as boolean | number | null
  throw new TypeError(`the fact ${name} must be a text, a number, true, false or null`)
}
