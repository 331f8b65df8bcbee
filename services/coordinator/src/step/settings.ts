/** The settings that a process declares. */
import { Secret } from '@integration-host/shared/secrets/secret'
import { z } from 'zod'

/** The declared settings: a zod schema for each setting. The schema parses the text of an environment variable. */
export type SettingSchemas = Readonly<Record<string, z.ZodType>>

/** The values of the declared settings, including the secrets. */
export type SettingValues<Schemas extends SettingSchemas> = {
  readonly [Name in keyof Schemas]: z.output<Schemas[Name]>
}

/** The values that steps can read: all settings except secrets. */
export type StepSettings<Schemas extends SettingSchemas> = {
  readonly [
    Name in keyof Schemas as Extract<z.output<Schemas[Name]>, Secret> extends never ? Name : never
  ]: z.output<Schemas[Name]>
}

// The minimum length of a secret. The data that a step sends and stores is searched for secrets, and a shorter text
// could occur there by chance.
const MIN_SECRET_LENGTH = 8
// The maximum length of a secret. The search pattern for a longer one could be too large for V8's regular expressions.
const MAX_SECRET_LENGTH = 2_048

/**
 * Declares a setting that is a secret, such as the key of a target. Steps cannot read a secret: only the `auth` of a
 * target may use it.
 */
export const secret = (): z.ZodType<Secret, string> =>
  z
    .string()
    .min(MIN_SECRET_LENGTH, `must have at least ${MIN_SECRET_LENGTH} characters`)
    .max(MAX_SECRET_LENGTH, `must have at most ${MAX_SECRET_LENGTH} characters`)
    .transform((value) => new Secret(value))

/** Returns the settings that are not secrets. */
export const withoutSecrets = (values: Readonly<Record<string, unknown>>) =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => !(value instanceof Secret)))

/** Returns the settings that are secrets. */
export const secretsOf = (
  values: Readonly<Record<string, unknown>>,
): readonly (readonly [name: string, secret: Secret])[] =>
  Object.entries(values).flatMap(([name, value]) =>
    value instanceof Secret ? [[name, value] as const] : [],
  )

/** Whether a value contains a nested secret. Steps could read such a secret, and it would not be redacted. */
export function hasNestedSecret(value: unknown, seen = new Set<unknown>()): boolean {
  if (typeof value !== 'object' || value === null || value instanceof Secret || seen.has(value))
    return false
  seen.add(value)
  const members =
    value instanceof Map || value instanceof Set
      ? [...value.entries()].flat()
      : Object.values(value)
  return members.some((member) => member instanceof Secret || hasNestedSecret(member, seen))
}
