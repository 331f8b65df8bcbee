import { z } from 'zod'
import { Time } from './run-filter.ts'
import { EntityId, EntityName } from './provider-event.ts'
import { Realm } from './realm.ts'
import { StepName } from './step-message.ts'
import { ReplayID, TransactionID } from './transaction.ts'

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
