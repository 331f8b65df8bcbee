import { z } from 'zod'
import { isTag, plainText } from './text.ts'
import { Priority, headerStatuses } from './transaction.ts'
import { Realm } from './realm.ts'

/** The version of a process definition, as it is stored with a run. */
export const DefinitionVersion = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._+-]{0,31}$/,
    'must have at most 32 letters, digits, ., _, + and -, and begin with a letter or digit',
  )

/** The maximum number of values of one member of a filter. */
const MAX_VALUES = 20

/** Accepts one value or an array of values, because a query parameter that is given once arrives as a string. */
const several = <Schema extends z.ZodType>(schema: Schema) =>
  z.preprocess(
    (value) => (typeof value === 'string' ? [value] : value),
    z.array(schema).min(1).max(MAX_VALUES),
  )

/** Accepts a boolean, or its text in a query. */
const flag = z.preprocess(
  (value) => (value === 'true' ? true : value === 'false' ? false : value),
  z.boolean('must be true or false'),
)

/** A name that is compared with stored names. A name with characters that no stored name can have is rejected. */
const Name = plainText(200)

/**
 * A time in ISO 8601 with an offset. Parsing converts the time to UTC and cuts fractions of a second after six digits.
 * PostgreSQL rejects an offset above 15:59, a fraction of more than six digits, and the year 0000.
 */
export const Time = z.iso
  .datetime({ offset: true })
  .overwrite(inUtc)
  .refine((time) => /^\d{4}-/.test(time) && !time.startsWith('0000'), {
    error: 'must be in a year from 0001 to 9999 (UTC)',
  })

function inUtc(time: string): string {
  const fraction = /\.\d{1,6}/.exec(time)?.[0] ?? ''
  const second = new Date(time.replace(/\.\d+/, ''))
  // Zod calls this function even for a text that the schema has already rejected. Such a text need not be a valid
  // time.
  return Number.isNaN(second.getTime())
    ? time
    : second.toISOString().replace('.000Z', `${fraction}Z`)
}

/**
 * A filter for runs. It selects the runs that match every member. A run matches a member if the run has one of the
 * member's values. A run matches the member `tag` only if the run has all tags of this member.
 *
 * A query repeats a parameter for several values; a JSON body uses an array. Parsing a parsed filter again returns the
 * filter unchanged.
 */
export const RunFilter = z.strictObject({
  status: several(z.enum(headerStatuses)).optional(),
  step: several(Name).optional().meta({ description: 'the step that is due, or the last one' }),
  class: several(Name).optional().meta({
    description: "ErrorClass, such as http_503; or the provider's error code, such as 6240",
  }),
  version: several(DefinitionVersion).optional().meta({
    description: 'DefinitionVersion: the version of the process with which the run began',
  }),
  realm: several(Realm).optional(),
  waitingFor: several(Name).optional().meta({ description: 'a credential, such as ACC-1' }),
  priority: several(Priority).optional(),
  inDoubt: flag.optional(),
  children: flag
    .optional()
    .meta({ description: 'true: also runs that are children of other runs' }),
  idPrefix: Name.optional().meta({ description: 'the beginning of TransactionID' }),
  tag: several(z.string().refine(isTag, 'must be name:value'))
    .optional()
    .meta({ description: 'name:value; of several tags a run must have all' }),
  from: Time.optional().meta({ description: 'created at this time or later' }),
  until: Time.optional().meta({ description: 'created before this time' }),
  since: Time.optional().meta({
    description: 'finished, or while unfinished changed, at this time or later',
  }),
})
export type RunFilter = z.output<typeof RunFilter>

/** Splits `name:value` at the first colon, because the name of a tag has no colon. */
export function tagOf(text: string): { readonly name: string; readonly value: string } {
  const colon = text.indexOf(':')
  return { name: text.slice(0, colon), value: text.slice(colon + 1) }
}
