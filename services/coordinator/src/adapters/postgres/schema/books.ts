/** The tables of what runs have written to the books of companies. */
import { sql } from 'drizzle-orm'
import { index, integer, jsonb, pgTable, primaryKey, text } from 'drizzle-orm/pg-core'
import { key, time } from './columns.ts'

/**
 * The book of entries: a row for each object that a call of a step has created, changed, voided or deleted in the books of
 * a company. It contains no business data: of the written fields, only their names and keyed hashes are stored.
 */
export const bookEntry = pgTable(
  'Book_Entry',
  {
    /** A hash of what identifies the write, so that a write that is recorded twice is stored once. */
    EntryID: key('EntryID').primaryKey(),
    Realm: key('Realm').notNull(),
    Entity: key('Entity').notNull(),
    EntityID: key('EntityID').notNull(),
    /** `create`, `update`, `delete` or `void`. */
    Operation: text('Operation').notNull(),
    Process: key('Process').notNull(),
    TransactionID: key('TransactionID').notNull(),
    ReplayID: integer('ReplayID').notNull(),
    StepName: key('StepName').notNull(),
    /** The version of the object after the write; null if the provider has returned none, as for a deletion. */
    SyncToken: text('SyncToken'),
    /**
     * The written fields: a JSON object that maps the path of each field to 8 bytes of HMAC-SHA-256 over the value that the
     * provider has returned, in hexadecimal; null after the erasure of the run.
     */
    Fields: jsonb('Fields').$type<Readonly<Record<string, string>>>(),
    /** Identifies the key of the hashes in `Fields`. */
    FieldsKey: text('FieldsKey'),
    /** In whole milliseconds, so that pages can continue at a time that a client has read. */
    RecordedAt: time('RecordedAt').notNull(),
    /** What is known of the object. Only the newest entry of an object is compared; older ones are `Superseded`. */
    State: text('State').notNull(),
    /** The time at which the object was last compared with the entry; null if it was not compared yet. */
    CheckedAt: time('CheckedAt'),
    /** The names of the fields that were changed since; null if none is known to be changed. */
    Changed: jsonb('Changed').$type<readonly string[]>(),
  },
  (table) => [
    index('Book_Entry_newest').on(table.RecordedAt, table.EntryID),
    index('Book_Entry_realm').on(table.Realm, table.RecordedAt, table.EntryID),
    index('Book_Entry_object').on(table.EntityID, table.Realm, table.Entity),
    // Few rows are in this index: objects that were changed from outside, or are gone.
    index('Book_Entry_outside')
      .on(table.CheckedAt)
      .where(sql`"State" in ('ChangedOutside', 'Voided', 'Deleted', 'Missing')`),
    index('Book_Entry_run').on(table.Process, table.TransactionID, table.RecordedAt, table.EntryID),
  ],
)

/** The marks that `createOnce` has reserved. A mark belongs to the step of one run, before and after its call. */
export const bookMark = pgTable(
  'Book_Mark',
  {
    Realm: key('Realm').notNull(),
    Entity: key('Entity').notNull(),
    Field: key('Field').notNull(),
    /** HMAC-SHA-256 over the value of the field, in hexadecimal. */
    Value: key('Value').notNull(),
    /** The idempotency key of the call that creates the object. */
    Holder: key('Holder').notNull(),
    Process: key('Process').notNull(),
    TransactionID: key('TransactionID').notNull(),
    ReplayID: integer('ReplayID').notNull(),
    StepName: key('StepName').notNull(),
    /** The existing object that the step has adopted; null if it has adopted none. */
    EntityID: key('EntityID'),
    ReservedAt: time('ReservedAt').notNull(),
    /** The time before which the last call was not sent. */
    SentAt: time('SentAt').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.Realm, table.Entity, table.Field, table.Value] }),
    index('Book_Mark_sent').on(table.SentAt),
  ],
)
