import { Label, Tags } from '@integration-host/shared/contracts/labels'
import type { z } from 'zod'
import { UsageError } from './exit-code.ts'

/** The options `--label` and `--tag` of a command. */
export const labelOptions = {
  label: { type: 'string' },
  tag: { type: 'string', multiple: true },
} as const

/**
 * Parses the values of `--label` and `--tag NAME=VALUE`. A member is absent if its option was not given.
 *
 * @throws {UsageError} a value is not valid.
 */
export function parseLabels(values: { label?: string | undefined; tag?: string[] | undefined }): {
  readonly label?: string
  readonly tags?: Tags
} {
  const { label, tag } = values
  return {
    ...(label !== undefined && { label: valid('--label', Label, label) }),
    ...(tag !== undefined && { tags: valid('--tag', Tags, Object.fromEntries(tag.map(pairOf))) }),
  }
}

/** Splits `NAME=VALUE`. @throws {UsageError} there is no name or no `=`. */
export function pairOf(text: string): [name: string, value: string] {
  const equals = text.indexOf('=')
  if (equals < 1) throw new UsageError('--tag must be NAME=VALUE')
  return [text.slice(0, equals), text.slice(equals + 1)]
}

function valid<Schema extends z.ZodType>(
  option: string,
  schema: Schema,
  value: unknown,
): z.output<Schema> {
  const parsed = schema.safeParse(value)
  if (!parsed.success) throw new UsageError(`${option} ${parsed.error.issues[0]?.message ?? ''}`)
  return parsed.data
}
