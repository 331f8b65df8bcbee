/**
 * The tables of the runs. They are a public interface: inserting a row with `Process`, `TransactionID` and
 * `InitialData` queues a transaction, and a select shows its progress. All times come from the database's clock.
 */
import { headerStatuses, itemStatuses } from '@integration-host/shared/contracts/transaction'
import { sql } from 'drizzle-orm'
import {
  bigint,
  boolean,
  check,
  doublePrecision,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  smallint,
  text,
} from 'drizzle-orm/pg-core'
import { key, oneOf, time } from './columns.ts'

const HEADER_TIMES = [
  'LeaseUntil',
  'StartedAt',
  'NextAttemptAt',
  'NextSweepAt',
  'CreatedAt',
  'UpdatedAt',
  'CompletedAt',
  'ErasedAt',
  'PurgedAt',
  'DeadlineAt',
  'NotBefore',
]
/** The years 1 to 9999, except their first and last days. ISO 8601 cannot represent `infinity` or years BC. */
const CALENDAR = `'[0001-01-02 00:00+00,9999-12-30 00:00+00]'::tstzrange`

export const orderHeader = pgTable(
  'Order_Header',
  {
    Process: key('Process').notNull(),
    TransactionID: key('TransactionID').notNull(),
    ReplayID: integer('ReplayID').notNull().default(0),
    Status: text('Status', { enum: headerStatuses }).notNull().default('Queued'),
    /** An empty name means the first step of the process. */
    StepName: key('StepName').notNull().default(''),
    InitialData: jsonb('InitialData').notNull(),
    Realm: text('Realm'),
    /**
     * Grows by 1 with each transition. The version is a fence (fencing token): the outcome of a worker with an older
     * version is rejected.
     */
    Version: integer('Version').notNull().default(0),
    LeaseOwner: text('LeaseOwner'),
    LeaseUntil: time('LeaseUntil'),
    /** The time at which the attempt in flight started. */
    StartedAt: time('StartedAt'),
    Attempt: integer('Attempt').notNull().default(0),
    /**
     * Whether an earlier attempt of the due step may have taken effect. If so, `confirm` is called before the next
     * attempt.
     */
    InDoubt: boolean('InDoubt').notNull().default(false),
    NextAttemptAt: time('NextAttemptAt').defaultNow(),
    /**
     * The time at which the sweeper next republishes the step message of the run, and the number of times that it has
     * done so since the last transition of the run.
     */
    NextSweepAt: time('NextSweepAt').notNull().defaultNow(),
    SweepCount: integer('SweepCount').notNull().default(0),
    WaitingFor: text('WaitingFor'),
    LastError: text('LastError'),
    ErrorClass: text('ErrorClass'),
    CreatedAt: time('CreatedAt').notNull().defaultNow(),
    UpdatedAt: time('UpdatedAt').notNull().defaultNow(),
    CompletedAt: time('CompletedAt'),
    /** The tags of the run as an object of strings; replays keep them. A trigger copies the pairs to `Order_Tag`. */
    Tags: jsonb('Tags').$type<Readonly<Record<string, string>>>(),
    /** Whether the initial data of this replay differs from that of the transaction's previous run. */
    InputChanged: boolean('InputChanged').notNull().default(false),
    /**
     * The concurrency key to which the limit of the process applies. It is set when the run is queued, or else by its
     * first claim.
     */
    ConcurrencyKey: text('ConcurrencyKey'),
    /**
     * Status, error class and in-doubt flag of a run that has ended without being completed; null for every other run.
     * They are copies that can be indexed at low cost, because a trigger updates them only when a run ends, is resumed or is
     * settled. `Status` itself is changed by every claim. The trigger changes the row after the update, because a
     * trigger before an update makes PostgreSQL lock each row first, even if its WHEN is false.
     */
    EndedAs: key('EndedAs'),
    EndedClass: key('EndedClass'),
    EndedInDoubt: boolean('EndedInDoubt'),
    /** The time at which an erasure blanked the data of the run. */
    ErasedAt: time('ErasedAt'),
    /**
     * The time at which retention removed the data, items and attempts of the run. The row stays as a record of the id,
     * so that a late duplicate of the transaction is not run again.
     */
    PurgedAt: time('PurgedAt'),
    /** The version of the process definition when the run began; null if the definition had no version. */
    DefinitionVersion: key('DefinitionVersion'),
    /** The time by which the run must have ended, or else it fails; null if there is no deadline. */
    DeadlineAt: time('DeadlineAt'),
    /**
     * The time before which the run does not start. If another program inserts a row, a trigger postpones
     * `NextAttemptAt` to this time.
     */
    NotBefore: time('NotBefore'),
    /**
     * The debounce key, and the number of requests that the run has absorbed; null if it was queued without `Debounce`.
     */
    DebounceKey: text('DebounceKey'),
    Absorbed: integer('Absorbed'),
    /**
     * The run that has started this run as one of its children, and the place of its process that did so; null for every
     * other run.
     */
    ParentProcess: key('ParentProcess'),
    ParentTransactionID: key('ParentTransactionID'),
    ParentReplayID: integer('ParentReplayID'),
    ParentPlace: key('ParentPlace'),
    /** The position of the run in the list of its parent, from 0; null for every other run, also for a replay of a child. */
    ParentItem: integer('ParentItem'),
    /** 0: `normal`. A greater number, usually 1: `high`. */
    Priority: smallint('Priority').notNull().default(0),
  },
  (table) => [
    primaryKey({ columns: [table.Process, table.TransactionID, table.ReplayID] }),
    check('Order_Header_Status', oneOf('Status', headerStatuses)),
    // Other programs insert rows as well, so the values are checked: if the coordinator could not parse one row, a
    // statement would fail for all rows of its batch. The constraints are short, because PostgreSQL parses their stored
    // form in each statement that inserts or updates rows. A null does not violate `all`.
    check(
      'Order_Header_numbers',
      sql`0 <= all (array["ReplayID", "Version", "Attempt", "SweepCount"]) and "SweepCount" <= 1000000`,
    ),
    check(
      'Order_Header_times',
      sql.raw(
        `${CALENDAR} @> all (array[${HEADER_TIMES.map((column) => `"${column}"`).join(', ')}])`,
      ),
    ),
    // The index contains unfinished runs only, so it stays small as finished runs accumulate. `Status` is not indexed,
    // because every claim changes it: an update that changes no indexed column writes no index, and its new row version
    // can stay on the same page (HOT update).
    index('Order_Header_due')
      .on(table.NextSweepAt)
      .where(sql`"CompletedAt" is null`),
    index('Order_Header_waiting_for')
      .on(table.WaitingFor)
      .where(sql`"WaitingFor" is not null`),
    // These indexes contain no purged rows. Only the statements that list runs have the condition `"PurgedAt" is null`,
    // so the planner uses these indexes only for lists. An index without this condition might be used instead of the
    // primary key by other statements.
    index('Order_Header_newest')
      .on(table.Process, table.CreatedAt, table.TransactionID, table.ReplayID)
      .where(sql`"PurgedAt" is null`),
    index('Order_Header_completed')
      .on(table.Process, table.CompletedAt, table.TransactionID, table.ReplayID)
      .where(sql`"CompletedAt" is not null and "PurgedAt" is null`),
    index('Order_Header_ended')
      .on(
        table.Process,
        table.EndedAs,
        table.EndedClass,
        table.EndedInDoubt,
        table.CreatedAt,
        table.TransactionID,
        table.ReplayID,
      )
      .where(sql`"EndedAs" is not null and "PurgedAt" is null`),
    index('Order_Header_realm')
      .on(table.Realm, table.CreatedAt, table.Process, table.TransactionID, table.ReplayID)
      .where(sql`"Realm" is not null and "PurgedAt" is null`),
    index('Order_Header_version')
      .on(
        table.Process,
        table.DefinitionVersion,
        table.CreatedAt,
        table.TransactionID,
        table.ReplayID,
      )
      .where(sql`"DefinitionVersion" is not null and "PurgedAt" is null`),
    index('Order_Header_deadline')
      .on(table.DeadlineAt)
      .where(sql`"DeadlineAt" is not null and "CompletedAt" is null`),
    index('Order_Header_purged')
      .on(table.PurgedAt)
      .where(sql`"PurgedAt" is not null`),
    // No column of the index changes, so the claim of a child writes no index.
    index('Order_Header_children')
      .on(
        table.ParentProcess,
        table.ParentTransactionID,
        table.ParentReplayID,
        table.ParentPlace,
        table.ParentItem,
      )
      .where(sql`"ParentProcess" is not null`),
  ],
)

export const orderItem = pgTable(
  'Order_Item',
  {
    Process: key('Process').notNull(),
    TransactionID: key('TransactionID').notNull(),
    ReplayID: integer('ReplayID').notNull(),
    StepName: key('StepName').notNull(),
    Status: text('Status', { enum: itemStatuses }).notNull(),
    Attempt: integer('Attempt').notNull().default(0),
    IdempotencyKey: text('IdempotencyKey').notNull(),
    ResponseStatus: integer('ResponseStatus'),
    ResponseBody: text('ResponseBody'),
    Data: jsonb('Data'),
    Error: text('Error'),
    StartedAt: time('StartedAt'),
    FinishedAt: time('FinishedAt'),
    /** The state with which a repeated step starts its next round, and the number of that round; null before a repeat. */
    State: jsonb('State'),
    Round: integer('Round'),
    /** The progress that a step in flight has reported last. */
    Report: jsonb('Report'),
    /** What a page shows to the person who decides: the values that the process chose when the run began to wait. */
    Ask: jsonb('Ask'),
    /** Who has sent the event: service key, person, reason and the id that the sender gave to the event. */
    Sender: jsonb('Sender'),
  },
  (table) => [
    primaryKey({
      columns: [table.Process, table.TransactionID, table.ReplayID, table.StepName],
    }),
    check('Order_Item_Status', oneOf('Status', itemStatuses)),
    // `autosummarize` is on, because otherwise a BRIN index does not cover the pages that were added since the last
    // VACUUM, and a statement would read all of these pages.
    index('Order_Item_recent').using('brin', table.FinishedAt).with({ autosummarize: true }),
  ],
)

export const orderAttempt = pgTable(
  'Order_Attempt',
  {
    ID: bigint('ID', { mode: 'bigint' }).generatedAlwaysAsIdentity(),
    Process: key('Process').notNull(),
    TransactionID: key('TransactionID').notNull(),
    ReplayID: integer('ReplayID').notNull(),
    StepName: key('StepName').notNull(),
    Attempt: integer('Attempt').notNull(),
    Outcome: text('Outcome').notNull(),
    ResponseStatus: integer('ResponseStatus'),
    Error: text('Error'),
    /** The method and URL of the attempt's request, without the query; null if the step made no call. */
    Method: text('Method'),
    Url: text('Url'),
    TraceID: text('TraceID'),
    /** The id that the provider gave to its response: `intuit_tid`, or `X-Request-Id` if `intuit_tid` is missing. */
    ResponseID: text('ResponseID'),
    StartedAt: time('StartedAt').notNull(),
    FinishedAt: time('FinishedAt'),
  },
  (table) => [
    primaryKey({ columns: [table.Process, table.TransactionID, table.ReplayID, table.ID] }),
  ],
)

/**
 * The runs that have a slot or wait for one, in processes with a limit (`concurrency`). A row with `Held` counts only
 * while its run is `Running`. Therefore a transition that ends a run or makes it wait needs no additional statement to
 * release the slot. All statements on a group of rows hold the advisory lock of its process and key, or of its process if
 * the process has a total.
 */
export const orderSlot = pgTable(
  'Order_Slot',
  {
    Process: key('Process').notNull(),
    TransactionID: key('TransactionID').notNull(),
    ReplayID: integer('ReplayID').notNull(),
    /** Empty if the limit is for the whole process. */
    Key: key('Key').notNull(),
    Held: boolean('Held').notNull(),
    /** The priority of the run, as in `Order_Header`. */
    Priority: smallint('Priority').notNull().default(0),
    /** The time at which the waiting run became due. Slots are assigned in the order of these times. */
    DueAt: time('DueAt').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.Process, table.TransactionID, table.ReplayID] }),
    index('Order_Slot_order').on(
      table.Process,
      table.Held,
      table.Key,
      table.Priority.desc().nullsFirst(),
      table.DueAt,
      table.TransactionID,
      table.ReplayID,
    ),
    // Finds the keys that have waited longest, if many keys of a process wait.
    index('Order_Slot_waiting')
      .on(
        table.Process,
        table.Priority.desc().nullsFirst(),
        table.DueAt,
        table.TransactionID,
        table.ReplayID,
        table.Key,
      )
      .where(sql`not "Held"`),
  ],
)

/**
 * The families: the children that a place of a run has started (`.forEach`). The trigger `Order_Header_joined` counts
 * them, whatever ends or resumes a child.
 */
export const orderFamily = pgTable(
  'Order_Family',
  {
    Process: key('Process').notNull(),
    TransactionID: key('TransactionID').notNull(),
    ReplayID: integer('ReplayID').notNull(),
    Place: key('Place').notNull(),
    ChildProcess: key('ChildProcess').notNull(),
    /** The replay whose children these are: an earlier one if a replay has copied the place. */
    OfReplayID: integer('OfReplayID').notNull(),
    /** How the ids of the children begin. The id of the item follows. */
    Prefix: text('Prefix').notNull(),
    /** The length of the list, and how many of its children are stored. */
    Total: integer('Total').notNull(),
    Stored: integer('Stored').notNull().default(0),
    /** How many children have not ended, and how many of these wait for their turn. */
    Pending: integer('Pending').notNull().default(0),
    Waiting: integer('Waiting').notNull().default(0),
    /** How many children have ended without being completed, and how many may. */
    Failed: integer('Failed').notNull().default(0),
    Tolerated: integer('Tolerated').notNull(),
    /** How many children may run at the same time; null if there is no limit. */
    Concurrent: integer('Concurrent'),
    /** No child before this position of the list waits for its turn. */
    NextItem: integer('NextItem').notNull().default(0),
    /** The time limit of a child in milliseconds, which counts from its turn; null if there is none. */
    DeadlineMs: doublePrecision('DeadlineMs'),
    /** Whether the children were dealt with after the end of the parent. */
    Cascaded: boolean('Cascaded').notNull().default(false),
    /** The time at which the parent was resumed last. */
    ResumedAt: time('ResumedAt'),
    /** The time at which the children were purged. */
    PurgedAt: time('PurgedAt'),
    /** The time at which a sweeper next looks at the family; null if there is nothing left to do. */
    NextSweepAt: time('NextSweepAt'),
  },
  (table) => [
    primaryKey({ columns: [table.Process, table.TransactionID, table.ReplayID, table.Place] }),
    index('Order_Family_due')
      .on(table.NextSweepAt)
      .where(sql`"NextSweepAt" is not null`),
  ],
)

/**
 * The newest run of each debounce key. This run absorbs further requests while it waits. A statement that queues a run
 * with a debounce key holds the advisory lock of the key. A claim neither reads nor writes this table: whether the run
 * still waits is decided by its locked row in `Order_Header`.
 */
export const orderDebounce = pgTable(
  'Order_Debounce',
  {
    Process: key('Process').notNull(),
    /** Empty if the transaction has no realm. */
    Realm: key('Realm').notNull(),
    Key: key('Key').notNull(),
    TransactionID: key('TransactionID').notNull(),
    /** The time until which the run absorbs requests: `MaxSeconds` after the first request. */
    Until: time('Until').notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.Process, table.Realm, table.Key] }),
    index('Order_Debounce_run').on(table.Process, table.TransactionID),
  ],
)

/** The places of delayed runs that limited service keys have queued. See `reserveDelayed`. */
export const orderDelayed = pgTable(
  'Order_Delayed',
  {
    Process: key('Process').notNull(),
    TransactionID: key('TransactionID').notNull(),
    KeyID: key('KeyID').notNull(),
    At: time('At').notNull().defaultNow(),
  },
  (table) => [
    primaryKey({ columns: [table.Process, table.TransactionID] }),
    index('Order_Delayed_key').on(table.KeyID),
  ],
)

/**
 * The ids of requests that the run of another transaction has absorbed. They are stored so that a repeated request is
 * recognized.
 */
export const orderAbsorbed = pgTable(
  'Order_Absorbed',
  {
    Process: key('Process').notNull(),
    TransactionID: key('TransactionID').notNull(),
    AbsorbedBy: key('AbsorbedBy').notNull(),
    At: time('At').notNull().defaultNow(),
  },
  (table) => [
    primaryKey({ columns: [table.Process, table.TransactionID] }),
    index('Order_Absorbed_run').on(table.Process, table.AbsorbedBy),
  ],
)

/** The tags of the runs that are not purged, for searches. A trigger fills the table when a run is inserted. */
export const orderTag = pgTable(
  'Order_Tag',
  {
    Name: key('Name').notNull(),
    Value: key('Value').notNull(),
    CreatedAt: time('CreatedAt').notNull(),
    Process: key('Process').notNull(),
    TransactionID: key('TransactionID').notNull(),
    ReplayID: integer('ReplayID').notNull(),
  },
  (table) => [
    primaryKey({
      name: 'Order_Tag_pk',
      columns: [
        table.Name,
        table.Value,
        table.CreatedAt,
        table.Process,
        table.TransactionID,
        table.ReplayID,
      ],
    }),
  ],
)
