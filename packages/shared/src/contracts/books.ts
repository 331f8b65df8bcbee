import { z } from 'zod'
import { Time } from './run-filter.ts'
import { Realm } from './realm.ts'

const Count = z.int().nonnegative()

/** The query of `GET /realms/{realm}/books`. */
export const BooksQuery = z.strictObject({
  since: Time.meta({ description: 'the begin of the period' }),
  until: Time.optional().meta({ description: 'the end of the period, exclusive; default: now' }),
})

/**
 * The response of `GET /realms/{realm}/books`: whether the work of a period is done, and is in the books as the runs have
 * written it. A run belongs to the period in which it was created, an object to the one in which it was last written.
 */
export const BooksView = z
  .object({
    Realm,
    Since: z.iso.datetime(),
    Until: z.iso.datetime(),
    Ready: z.boolean().meta({ description: 'whether nothing is left to do or to look at' }),
    Sentence: z.string().meta({
      examples: [
        'not ready to close: 1 run is unfinished, 2 entries were changed; 40 entries are verified',
      ],
    }),
    Runs: z.object({
      Unfinished: Count,
      Failed: Count,
      InDoubt: Count.meta({
        description: 'unfinished and failed runs whose step may have taken effect',
      }),
      IsLowerBound: z.boolean().meta({
        description: 'whether there may be more, because only the first 10,000 were read',
      }),
    }),
    Entries: z.object({
      Verified: Count,
      Unverified: Count.meta({ description: 'the change feed was not compared with them yet' }),
      Unprovable: Count.meta({
        description:
          'objects of entities that the change feed does not report, and entries of erased runs',
      }),
      Changed: Count,
      Voided: Count,
      Deleted: Count,
      Missing: Count,
    }),
  })
  .meta({ ref: 'Books' })
export type BooksView = z.output<typeof BooksView>
