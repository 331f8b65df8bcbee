import { AnyJson } from '@integration-host/shared/contracts/transaction'
import { isDeeperThan, isPreservedAsJson, MAX_DEPTH, normalizedJson } from './json-normalization.ts'
import { NOT_PRESERVED } from './queueable.ts'

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
