import { z } from 'zod'
import { Realm } from './realm.ts'

/** The recent calls of a company through one replica of the gateway. Calls through other replicas are not included. */
export const RealmActivity = z
  .object({
    Realm,
    HeldUntil: z.iso.datetime().nullable().meta({
      description: 'the end of the cool-down after a 429 that this replica has received',
    }),
    Waiting: z.int().nonnegative().meta({ description: 'calls that wait for a permit' }),
    LastSecond: z.int().nonnegative().meta({ description: 'calls that ended in the last second' }),
    LastMinute: z.int().nonnegative(),
    Failed: z.int().nonnegative().meta({ description: 'the length of Calls' }),
    Metered: z.int().nonnegative().nullable().meta({
      description:
        'the metered calls of this month, over all replicas; null while the counts cannot be read',
    }),
  })
  .meta({ ref: 'RealmActivity' })
export type RealmActivity = z.output<typeof RealmActivity>

/**
 * The response of `GET /realms`: companies in a cool-down first, then companies with waiting calls, then the companies
 * with the most calls.
 */
export const RealmActivityList = z
  .object({
    Limits: z.object({ PerSecond: z.int(), PerMinute: z.int(), Concurrent: z.int() }),
    Month: z.string().meta({ examples: ['2026-11'] }),
    items: z.array(RealmActivity).meta({ description: 'at most 100' }),
  })
  .meta({ ref: 'RealmActivityList' })
export type RealmActivityList = z.output<typeof RealmActivityList>

/** A call that ended with a status of 400 or above. */
const FailedCall = z
  .object({
    At: z.iso.datetime().meta({ description: 'the end of the call' }),
    Method: z.string(),
    Path: z.string().meta({ description: 'without the query' }),
    Status: z.int().meta({ description: '499 if the caller closed its connection first' }),
    Code: z.string().nullable().meta({ description: 'if the gateway itself rejected the call' }),
    ProviderError: z
      .string()
      .nullable()
      .default(null)
      .meta({ description: "the provider's code and message; a text from outside" }),
    DurationMs: z.int().nonnegative(),
    WaitedMs: z.int().nonnegative(),
    Attempts: z.int().nonnegative(),
    IntuitTid: z.string().nullable().meta({ description: "quote it to Intuit's support" }),
    RequestID: z.string().meta({ description: 'the requestId of the log' }),
  })
  .meta({ ref: 'FailedCall' })

/** The response of `GET /realms/{realm}`. */
export const RealmCalls = RealmActivity.extend({
  Calls: z.array(FailedCall).meta({ description: 'the last 20, the newest first' }),
}).meta({ ref: 'RealmCalls' })
export type RealmCalls = z.output<typeof RealmCalls>
