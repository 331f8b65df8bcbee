/** A company as the coordinator shows it: its pause, its change feed, its books, and its book of entries. */
import { z } from 'zod'
import { Realm } from './realm.ts'
import { Time } from './run-filter.ts'
import { EntityId, EntityName } from './provider-event.ts'
import { StepName, ReplayID, TransactionID } from './transaction.ts'

const HIDDEN = 'null for a key without `transactions:read`'

/** Whether the steps of a company's runs wait. The response of `POST /realms/{realm}/pause` and `resume`. */
export const CompanyPauseView = z
  .object({
    Realm,
    Paused: z.boolean(),
    PausedAt: z.iso.datetime().nullable().meta({ description: 'null if it is not paused' }),
    PausedBy: z
      .string()
      .nullable()
      .meta({
        description: `a person or the id of a key; ${HIDDEN}`,
      }),
    Reason: z
      .string()
      .nullable()
      .meta({ description: `of the pause; ${HIDDEN}` }),
  })
  .meta({ ref: 'CompanyPause' })
export type CompanyPauseView = z.output<typeof CompanyPauseView>

/** The response of `GET /realms/paused`: the paused companies in the order of their ids. */
export const PausedCompanies = z
  .object({ items: z.array(CompanyPauseView) })
  .meta({ ref: 'PausedCompanies' })
export type PausedCompanies = z.output<typeof PausedCompanies>

/** The response of `GET /realms/{realm}/changes`: how far the change feed of a company was read. */
export const ChangesView = z
  .object({
    Realm,
    ReadUntil: z.iso.datetime().meta({
      description:
        'every change before this time was read; the next sweep begins 5 minutes before it',
    }),
    LagSeconds: z.number().nonnegative().meta({ description: 'how long ago ReadUntil is' }),
    SweptAt: z.iso.datetime().nullable().meta({
      description: 'when the last sweep has ended; null before the first one',
    }),
    Events: z.int().nonnegative().meta({
      description:
        'the events that the last sweep has published, including those that webhooks had delivered before',
    }),
    Incomplete: z.string().nullable().meta({
      description: 'what the last sweep could not read; null if it has read everything',
    }),
  })
  .meta({ ref: 'Changes' })
export type ChangesView = z.output<typeof ChangesView>

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

/** What a write has done with an object in the books of a company. */
export const entryOperations = ['create', 'update', 'delete', 'void'] as const
export type EntryOperation = (typeof entryOperations)[number]

/**
 * What is known of the object of an entry. `Recorded`: the provider has confirmed the write, and nothing was compared since.
 * `Superseded`: the object has a newer entry. `Unproven`: the run was erased, so nothing can be compared.
 */
export const entryStates = [
  'Recorded',
  'Superseded',
  'Verified',
  'ChangedOutside',
  'Voided',
  'Deleted',
  'Missing',
  'Unproven',
] as const
export type EntryState = (typeof entryStates)[number]

/** An entry of the book of entries: an object that a run has written to the books of a company. It has no business data. */
export const EntryView = z
  .object({
    EntryID: z.string().meta({ description: 'identifies the entry', examples: ['8a4f0c…'] }),
    Realm,
    Entity: z.string().meta({ examples: ['Invoice'] }),
    EntityID: z.string().meta({ description: 'the id of the object', examples: ['129'] }),
    // Both are strings, because during an upgrade a replica may read a value that only a newer release knows.
    Operation: z.string().meta({ description: 'create, update, delete or void' }),
    Process: z.string(),
    TransactionID: z.string(),
    ReplayID,
    StepName: z.string(),
    SyncToken: z.string().nullable().meta({
      description: 'the version of the object after the write; null if the provider returned none',
    }),
    Fields: z
      .record(z.string(), z.string())
      .nullable()
      .meta({
        description:
          'the written fields: the path of each, and a keyed hash of its value; null after an erasure of the run',
        examples: [{ 'Line[1].Amount': '5d1c0f3a9be27764' }],
      }),
    RecordedAt: z.iso.datetime(),
    State: z.string().meta({
      description:
        'what is known of the object: Recorded, Superseded (the object has a newer entry), Verified, ChangedOutside, Voided, Deleted, Missing, or Unproven (the run was erased)',
    }),
    CheckedAt: z.iso.datetime().nullable().meta({
      description: 'when the object was last compared with the entry; null if it was not yet',
    }),
    Changed: z.array(z.string()).nullable().meta({
      description: 'the paths of the fields that were changed since; null if none is known',
    }),
  })
  .meta({ ref: 'Entry' })
export type EntryView = z.output<typeof EntryView>

/** A page of `GET /entries`, newest first. */
export const EntryPage = z
  .object({
    items: z.array(EntryView),
    next_cursor: z.string().nullable().meta({
      description: 'the next page begins with `cursor` set to this; null if there is none',
    }),
  })
  .meta({ ref: 'EntryPage' })
export type EntryPage = z.output<typeof EntryPage>

/** The filter of `GET /entries`. An entry matches if it has the value of every member. */
export const EntryFilter = z.strictObject({
  realm: Realm.optional(),
  entity: EntityName.optional(),
  id: EntityId.optional().meta({ description: 'the id of the object' }),
  process: StepName.optional(),
  transaction: TransactionID.optional(),
  state: z.enum(entryStates).optional(),
  since: Time.optional().meta({ description: 'recorded at this time or later' }),
})
export type EntryFilter = z.output<typeof EntryFilter>
