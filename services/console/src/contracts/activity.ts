/** The page Activity: who did what, from the logs of the services and from the console's own sign-ins. */
import { Realm } from '@integration-host/shared/contracts/realm'
import { TransactionID } from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import { MissingService } from './services.ts'

/** The kinds of entries: actions on runs, actions on processes, actions on companies, and sign-ins at the console. */
const activityKinds = ['runs', 'processes', 'companies', 'sign-ins'] as const

export const ActivityEntry = z
  .object({
    Key: z.string(),
    At: z.iso.datetime(),
    Kind: z.enum(activityKinds),
    Who: z.string().meta({ description: 'the person, or else the key or the program' }),
    Via: z.string().nullable().meta({ description: 'the key that acted for the person' }),
    What: z.string(),
    Target: z.string().nullable().meta({
      description: 'on what, such as `OrderProcess/66, run 0` or the credential of a company',
    }),
    Company: z.string().nullable().meta({
      description: 'the name of the company whose credential is Target; null if it has none',
    }),
    Page: z.string().nullable().meta({ description: 'the page of the console about the target' }),
    Reason: z.string().nullable(),
    Outcome: z.string().nullable().meta({
      description:
        'null if it was done; otherwise the code of the rejection or the class of the fault',
    }),
    Rejected: z.boolean(),
    Realm: z.string().nullable(),
    TraceId: z.string().nullable().meta({ description: "the provider's trace id" }),
  })
  .meta({ ref: 'ActivityEntry' })
export type ActivityEntry = z.output<typeof ActivityEntry>

export const ActivityQuery = z.strictObject({
  before: z
    .string()
    .regex(/^(?:\d{0,15}|end)(?:\.(?:\d{0,15}|end)){2}$/)
    .optional(),
  person: z.string().min(1).max(100).optional(),
  kind: z.enum(activityKinds).optional(),
  realm: Realm.optional(),
  process: z.string().min(1).max(200).optional(),
  id: TransactionID.optional(),
})
export type ActivityQuery = z.output<typeof ActivityQuery>

export const ActivityView = z
  .object({
    Entries: z.array(ActivityEntry),
    Next: z.string().nullable().meta({
      description:
        '`before` of the next page, which has older entries; null at the end. A page may be empty although there is a next one',
    }),
    Unavailable: z.array(MissingService).meta({
      description: 'the services whose entries are missing in this page and in the next pages',
    }),
    SignInsSince: z.iso.datetime().meta({ description: 'older sign-ins are not known' }),
  })
  .meta({ ref: 'Activity' })
export type ActivityView = z.output<typeof ActivityView>
