/** The checks of a transaction that a client queues, by HTTP request or by message. */
import { AnyJson, QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { IntegrationError } from '@integration-host/shared/errors'
import { isDeeperThan, isPreservedAsJson, MAX_DEPTH, normalizedJson } from './json-normalization.ts'

/** The maximum size of a transaction in bytes of JSON. A larger transaction is rejected. */
export const MAX_TRANSACTION_BYTES = 262_144

export const NOT_PRESERVED =
  'must not contain U+0000, half a surrogate pair, or a number with more digits than a double holds'

/** A transaction that can be queued: the shared contract, restricted to data that can be stored unchanged. */
export const Queueable = QueueTransaction.refine(
  ({ InitialData }) => isPreservedAsJson(InitialData),
  { path: ['InitialData'], error: NOT_PRESERVED },
)
  .refine(({ NotBefore, Debounce }) => NotBefore === undefined || Debounce === undefined, {
    path: ['NotBefore'],
    error: 'must not be combined with Debounce, which sets it',
  })
  // Normalizes the data: JSON stores -0 as 0, so a repeated request with -0 would otherwise be rejected as a conflict.
  .overwrite((transaction) => ({
    ...transaction,
    // The cast is safe, because the two types differ only in which members are readonly.
    InitialData: normalizedJson(transaction.InitialData) as typeof transaction.InitialData,
  }))

export type CheckedTransaction =
  | { readonly transaction: QueueTransaction }
  /** The problems with the value. Each problem begins with the path of the member, and contains no value. */
  | { readonly problems: readonly string[] }

const MAX_PROBLEMS = 5

/**
 * Checks the transaction of a request or message. The caller checks its size.
 *
 * @param value a value that `parseClientJson` returned
 * @param whole the path to report if a problem concerns the whole value
 */
export function checkedQueueable(value: unknown, whole: string): CheckedTransaction {
  if (isDeeperThan(value, MAX_DEPTH))
    return { problems: [`InitialData: may have ${MAX_DEPTH} levels`] }
  const parsed = Queueable.safeParse(value)
  if (!parsed.success)
    return {
      problems: parsed.error.issues
        .slice(0, MAX_PROBLEMS)
        .map(({ path, message }) => `${path.map(String).join('.') || whole}: ${message}`),
    }
  return { transaction: parsed.data }
}

/**
 * Returns the body as text.
 *
 * @throws {IntegrationError} if the body is not UTF-8 (RFC 8259 §8.1): invalid bytes would otherwise be stored
 * as U+FFFD.
 */
export function utf8Of(body: ArrayBuffer | Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(body)
  } catch {
    throw new IntegrationError('invalid_request', 'the body must be UTF-8')
  }
}

/** Any JSON that can be stored unchanged, from a body that `parseClientJson` has parsed. */
// This schema has no name and no description in the OpenAPI document, because each member that uses it has a
// description of its own.
export const StorableJson = AnyJson.meta({ ref: undefined, description: undefined })
  .refine((data) => !isDeeperThan(data, MAX_DEPTH - 1), {
    error: `may have ${MAX_DEPTH} levels`,
    abort: true, // the next check is recursive, so it must not run for data that is nested too deeply
  })
  .refine(isPreservedAsJson, NOT_PRESERVED)
  // The cast is safe, because the two types differ only in which members are readonly.
  .overwrite((data) => normalizedJson(data) as typeof data)
