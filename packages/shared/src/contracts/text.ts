/**
 * The texts that people write and read: names, labels, tags and reasons. Two names that look the same must not differ,
 * and no name may look like nothing: a person decides by such a name, for example which company to connect.
 */
import { z } from 'zod'

/**
 * The characters that have no shape of their own: control and format characters, unpaired surrogates, private use, line
 * and paragraph separators, and all that Unicode lets a program leave out (`Default_Ignorable_Code_Point`), such as the
 * Hangul fillers, variation selectors and tag characters.
 */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u

/** Returns whether every character of a text has a shape. */
export const hasOnlyVisible = (text: string): boolean => !INVISIBLE.test(text)

/** Returns whether a text can be a name: all its characters are visible, and one is a letter or a digit. */
export const isVisibleName = (text: string): boolean =>
  hasOnlyVisible(text) && /[\p{L}\p{N}]/u.test(text)

/**
 * Returns a text from outside as a text of one line with visible characters: invisible characters become spaces, and what
 * is longer than `longest` characters is cut off.
 */
export const visibleText = (text: string, longest: number): string => {
  const line = text
    .slice(0, 8 * longest)
    .replaceAll(new RegExp(INVISIBLE, 'gu'), ' ')
    .replaceAll(/\s+/g, ' ')
    .trim()
  const characters = Array.from(line)
  return characters.length <= longest ? line : `${characters.slice(0, longest - 1).join('')}…`
}

/** Returns the schema of a text that is compared as it is, such as an id: 1 to `longest` characters without control characters. */
export const plainText = (longest: number) =>
  z
    .string()
    .min(1, 'must not be empty')
    .max(longest, `must have at most ${longest} characters`)
    .refine((text) => !/\p{Cc}/u.test(text), 'must not contain control characters')
    .refine((text) => text.isWellFormed(), 'must be well-formed Unicode')

/**
 * The label of a credential, and the tags of credentials and transactions. The label is the name that people use for
 * the company. Clients choose these texts, so a program that shows them in HTML must escape them. The schemas reject
 * characters that could change how the surrounding text is displayed.
 */

const MAX_TAGS = 10

/** What earlier releases have rejected. Labels and tags that they have stored may have other invisible characters. */
const EARLIER_REJECTED = /[\p{Cc}\p{Cs}\u2028\u2029\u202a-\u202e\u2066-\u2069]/u

/** Returns the schema of a text of at most `longest` characters (Unicode code points). */
const shortText = (longest: number) =>
  z
    .string()
    .refine((text) => text.length <= 2 * longest && Array.from(text).length <= longest, {
      error: `must have at most ${longest} characters`,
    })
    .refine((text) => !EARLIER_REJECTED.test(text), {
      error: 'must not have control characters, line separators or bidirectional overrides',
      abort: true, // the rule of visible names includes this one
    })

/** A label as earlier releases have accepted it, for documents that they have written. */
export const StoredLabel = shortText(100).refine((text) => /\S/.test(text), {
  error: 'must not be blank',
})

export const Label = StoredLabel.refine(isVisibleName, {
  error: 'must have a letter or digit, and no invisible characters',
}).meta({
  description: 'what people call the company, 1 to 100 characters',
  examples: ['Rosewood Interiors'],
})

/**
 * The name of a tag. It must not contain `:` and `=`, which separate name and value in queries and on command lines.
 */
const TagName = shortText(64).refine((name) => /\S/.test(name) && !/[:=]/.test(name))
const TAG_NAME_RULE =
  'a tag name must have 1 to 64 characters, none of them : or = or a control character'

const TagValue = shortText(256)

/** Returns whether `text` has the form `name:value` and is a valid tag. */
export const isTag = (text: string): boolean => {
  const colon = text.indexOf(':')
  return (
    TagName.safeParse(text.slice(0, Math.max(0, colon))).success &&
    TagValue.safeParse(text.slice(colon + 1)).success
  )
}

/** Tags as earlier releases have accepted them. */
export const StoredTags = z
  .record(TagName, TagValue, {
    error: ({ code }) => (code === 'invalid_key' ? TAG_NAME_RULE : undefined),
  })
  .refine((tags) => Object.keys(tags).length <= MAX_TAGS, {
    error: `at most ${MAX_TAGS} tags are possible`,
  })

/** A tag `__proto__` is rejected here, because `z.record` would drop it without an error. */
export const Tags = z
  .preprocess(
    (tags, context) => {
      if (typeof tags === 'object' && tags !== null && Object.hasOwn(tags, '__proto__'))
        context.addIssue({ code: 'custom', message: 'a tag must not be named __proto__' })
      return tags
    },
    StoredTags.refine(
      (tags) =>
        Object.entries(tags).every(([name, value]) => isVisibleName(name) && hasOnlyVisible(value)),
      { error: 'a tag must have a letter or digit in its name, and no invisible characters' },
    ),
  )
  .meta({
    description: `at most ${MAX_TAGS} pairs; a name has 1 to 64 characters without : and =, a value at most 256`,
    examples: [{ channel: 'shop' }],
  })
export type Tags = z.output<typeof Tags>

/** The body of `PATCH /credentials/{name}`. An absent member keeps its value; `null` removes it. */
export const LabelChange = z
  .strictObject({
    Label: Label.nullable().optional(),
    Tags: Tags.nullable().optional().meta({ description: 'replaces all tags' }),
  })
  .refine(({ Label: label, Tags: tags }) => label !== undefined || tags !== undefined, {
    error: 'Label or Tags is needed',
  })
  .meta({ ref: 'LabelChange' })

/** Label, name and tags in views and events. Empty members are absent. */
export const labelMembers = {
  Label: z.string().optional().meta({ description: 'what people call the company' }),
  CompanyName: z
    .string()
    .optional()
    .meta({ description: 'the name of the company at the provider; a text from outside' }),
  Tags: z.record(z.string(), z.string()).optional(),
}

/** Returns the name by which people know a company; `undefined` if neither a label nor the name is known. */
export const nameOf = ({
  Label: label,
  CompanyName,
}: {
  readonly Label?: string | undefined
  readonly CompanyName?: string | undefined
}): string | undefined => label ?? CompanyName

/** Returns label, name and tags as members of a view or event. Empty members are left out. */
export const labelMembersOf = ({
  label,
  tags,
  company = null,
}: {
  readonly label: string | null
  readonly tags: Tags
  readonly company?: { readonly name: string | null } | null
}): { Label?: string; CompanyName?: string; Tags?: Record<string, string> } => ({
  ...(label !== null && { Label: label }),
  ...(company !== null && company.name !== null && { CompanyName: company.name }),
  ...(Object.keys(tags).length > 0 && { Tags: { ...tags } }),
})

/**
 * Characters that a line of text must not contain: control characters, and characters that change the direction in
 * which the surrounding text is displayed.
 */
const UNSAFE_CHARACTERS = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/u

/**
 * The reason of an action, from the body of its request: 1-500 characters on one line. The reason is stored in the
 * action log.
 */
export const Reason = z
  .string()
  .min(1, 'must not be empty')
  .max(500, 'must have at most 500 characters')
  .refine(
    (reason) => !UNSAFE_CHARACTERS.test(reason),
    'must not contain control characters or characters that change the direction of text',
  )
  .refine((reason) => reason.isWellFormed(), 'must be well-formed Unicode')
  .meta({ examples: ['the customer asked for it'] })
