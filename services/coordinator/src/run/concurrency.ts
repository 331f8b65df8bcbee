/**
 * The limit on the number of runs of a process that are in progress at the same time, and the key to which the limit
 * applies.
 */
import type { z } from 'zod'
import { checkedInput } from './input-check.ts'
import { isPreservedAsJson } from './json-normalization.ts'

/** The option `concurrency` with a limit for the process, for each key, or both. */
export type ConcurrencyLimits =
  | {
      /** The maximum number of runs of the process in progress. The keys share them evenly. */
      readonly total: number
      /** The maximum number of runs of each key in progress. */
      readonly perKey?: number
    }
  | { readonly total?: number; readonly perKey: number }

export interface Concurrency {
  /** The maximum number of runs in progress. With `keyOf` it applies to each key, otherwise to the whole process. */
  readonly limit: number
  /** The maximum number of runs of all keys together; absent if there is none. */
  readonly total?: number
  /**
   * The function of the process that returns the key for its input, or for the realm of the run; `null` if the limit
   * applies to the whole process.
   */
  readonly keyOf: ((input: never) => unknown) | null
  /** Whether `keyOf` gets the realm of the run, or `null`, instead of its input. */
  readonly byRealm?: true
}

/**
 * The value of `WaitingFor` for a run that waits because the number of runs in progress has reached the limit of its
 * process.
 */
export const WAITS_FOR_SLOT = 'concurrency'

const MAX_KEY_LENGTH = 255
/** The key of a limit for each company. The runs without a company have one key together, which is not a realm. */
const keyOfRealm = (realm: string | null): string => realm || '(none)'

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
  const key = (concurrencyKey as Concurrency['keyOf'] | undefined) ?? null
  if (typeof concurrency !== 'object' || concurrency === null) {
    if (!isLimit(concurrency))
      throw new TypeError(
        `concurrency of ${name} must be a whole number, 1 or more, or { total, perKey } with such numbers`,
      )
    return { limit: concurrency, keyOf: key }
  }
  const unknown = Object.keys(concurrency).find((member) => !LIMITS.has(member))
  if (unknown !== undefined) throw new TypeError(`concurrency of ${name} has no option ${unknown}`)
  const { total, perKey } = concurrency as Partial<Record<keyof ConcurrencyLimits, unknown>>
  if (total === undefined && perKey === undefined)
    throw new TypeError(`concurrency of ${name} must have total, perKey or both`)
  for (const [member, limit] of Object.entries({ total, perKey }))
    if (limit !== undefined && !isLimit(limit))
      throw new TypeError(`concurrency.${member} of ${name} must be a whole number, 1 or more`)
  if (perKey === undefined && key === null) return { limit: total as number, keyOf: null }
  return {
    limit: (perKey ?? total) as number,
    ...(total !== undefined && { total: total as number }),
    ...(key === null ? { keyOf: keyOfRealm, byRealm: true } : { keyOf: key }),
  }
}

const LIMITS = new Set<string>(['total', 'perKey'] satisfies (keyof ConcurrencyLimits)[])

const isLimit = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 1

/** The members of a process definition that determine which initial data the process accepts. */
export interface Acceptance {
  readonly input: z.ZodType | null
  readonly concurrency: Concurrency | null
}

/**
 * Checks initial data, and returns the concurrency key of a run with this data and this realm; `null` if the process has
 * no key. If the data is not valid, returns the problems. They contain neither values nor the error messages
 * of `concurrencyKey`, because both may contain business data.
 */
export function acceptedKey(
  { input: schema, concurrency }: Acceptance,
  data: unknown,
  realm: string | null,
): { readonly key: string | null } | { readonly problems: readonly [string, ...string[]] } {
  const keyOf = concurrency?.keyOf ?? null
  // The function gets a copy of the data, because it may change its input, and the data must be stored as it was sent.
  const isOfData = keyOf !== null && concurrency?.byRealm !== true
  const checked = checkedInput(schema, isOfData ? structuredClone(data) : data)
  if ('problems' in checked) return checked
  if (keyOf === null) return { key: null }
  let key: unknown
  try {
    key = keyOf((isOfData ? checked.input : realm) as never)
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
