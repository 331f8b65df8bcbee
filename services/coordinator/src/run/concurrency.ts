/**
 * The limit on the number of runs of a process that are in progress at the same time, and the key to which the limit
 * applies.
 */
import type { z } from 'zod'
import { checkedInput } from './input-check.ts'
import { isPreservedAsJson } from './json-normalization.ts'

export interface Concurrency {
  /** The maximum number of runs in progress. With `keyOf` it applies to each key, otherwise to the whole process. */
  readonly limit: number
  /**
   * The function of the process that returns the key for its input; `null` if the limit applies to the whole process.
   */
  readonly keyOf: ((input: never) => unknown) | null
}

/**
 * The value of `WaitingFor` for a run that waits because the number of runs in progress has reached the limit of its
 * process.
 */
export const WAITS_FOR_SLOT = 'concurrency'

const MAX_KEY_LENGTH = 255

/**
 * @throws {TypeError} if `concurrency` or `concurrencyKey` is not valid, or if `concurrencyKey` would have no effect.
 */
export function concurrencyOf(
  name: string,
  {
    concurrency,
    concurrencyKey,
  }: { readonly concurrency?: unknown; readonly concurrencyKey?: unknown },
): Concurrency | null {
  if (concurrencyKey !== undefined && typeof concurrencyKey !== 'function')
    throw new TypeError(`concurrencyKey of ${name} must be a function of the input`)
  if (concurrency === undefined) {
    if (concurrencyKey === undefined) return null
    throw new TypeError(`concurrencyKey of ${name} has no effect without concurrency`)
  }
  if (!(Number.isSafeInteger(concurrency) && (concurrency as number) >= 1))
    throw new TypeError(`concurrency of ${name} must be a whole number, 1 or more`)
  return {
    limit: concurrency as number,
    keyOf: (concurrencyKey as Concurrency['keyOf'] | undefined) ?? null,
  }
}

/** The members of a process definition that determine which initial data the process accepts. */
export interface Acceptance {
  readonly input: z.ZodType | null
  readonly concurrency: Concurrency | null
}

/**
 * Checks initial data, and returns the concurrency key of a run with this data; `null` if the process has no
 * `concurrencyKey`. If the data is not valid, returns the problems. They contain neither values nor the error messages
 * of `concurrencyKey`, because both may contain business data.
 */
export function acceptedKey(
  { input: schema, concurrency }: Acceptance,
  data: unknown,
): { readonly key: string | null } | { readonly problems: readonly [string, ...string[]] } {
  const keyOf = concurrency?.keyOf ?? null
  // The function gets a copy of the data, because it may change its input, and the data must be stored as it was sent.
  const checked = checkedInput(schema, keyOf === null ? data : structuredClone(data))
  if ('problems' in checked) return checked
  if (keyOf === null) return { key: null }
  let key: unknown
  try {
    key = keyOf(checked.input as never)
  } catch (error) {
    const why = error instanceof Error ? error.name : 'not an error'
    return { problems: [`concurrencyKey: the function of the process threw ${why}`] }
  }
  // The rejection is handled here, because an unhandled rejection would end the OS process.
  if (key instanceof Promise) key.catch(() => {})
  if (typeof key !== 'string' || key === '' || key.length > MAX_KEY_LENGTH)
    return {
      problems: [
        `concurrencyKey: the function of the process must return a text of 1 to ${MAX_KEY_LENGTH} characters`,
      ],
    }
  if (!isPreservedAsJson(key))
    return {
      problems: ['concurrencyKey: the key must not contain U+0000 or half a surrogate pair'],
    }
  return { key }
}
