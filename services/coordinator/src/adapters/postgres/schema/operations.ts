/** The tables of operator actions, webhooks, dead letters, schedules and settings of the installation. */
import { sql } from 'drizzle-orm'
import {
  bigint,
  boolean,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  uniqueIndex,
} from 'drizzle-orm/pg-core'
import { bytea, key, time } from './columns.ts'

/**
 * Webhooks that are not delivered yet, in the order of their events. A webhook is delivered by a run of a built-in
 * process. For each receiver and each value of `OrderedBy`, only the oldest webhook has such a run. The row of a
 * webhook is deleted when its run has ended.
 */
export const orderWebhook = pgTable(
  'Order_Webhook',
  {
    TransactionID: key('TransactionID').primaryKey(),
    ID: bigint('ID', { mode: 'bigint' }).generatedAlwaysAsIdentity(),
    Receiver: key('Receiver').notNull(),
    Realm: text('Realm'),
    /**
     * Webhooks of a receiver with the same `OrderedBy` are sent one after another. `OrderedBy` is the realm of the
     * event. Events without a realm need no order, so they are spread over 64 other values, and up to 64 of their
     * webhooks can be in flight.
     */
    OrderedBy: key('OrderedBy').notNull(),
    InitialData: jsonb('InitialData').notNull(),
    At: time('At').notNull().defaultNow(),
  },
  (table) => [index('Order_Webhook_order').on(table.Receiver, table.OrderedBy, table.ID)],
)

export const orderProcess = pgTable('Order_Process', {
  Process: key('Process').primaryKey(),
  Paused: boolean('Paused').notNull().default(false),
  PausedAt: time('PausedAt'),
  PausedBy: text('PausedBy'),
  Reason: text('Reason'),
  UpdatedAt: time('UpdatedAt').notNull().defaultNow(),
})

/**
 * The action log. Append-only: no statement changes or deletes an entry. Each filter of `GET /actions` has an index
 * in which its entries are ordered by `ID`.
 */
export const orderAction = pgTable(
  'Order_Action',
  {
    ID: bigint('ID', { mode: 'bigint' }).primaryKey().generatedAlwaysAsIdentity(),
    At: time('At').notNull().defaultNow(),
    KeyID: text('KeyID').notNull(),
    Person: text('Person'),
    Action: text('Action').notNull(),
    Process: key('Process').notNull(),
    /** The transaction on which the action was performed; null for an action on the process itself. */
    TransactionID: key('TransactionID'),
    ReplayID: integer('ReplayID'),
    Realm: text('Realm'),
    Reason: text('Reason'),
    /** `done`, or the problem code of the rejection. */
    Outcome: text('Outcome').notNull(),
    /** The bulk operation to which the action belongs; null for a single action. */
    OperationID: key('OperationID'),
  },
  (table) => [
    index('Order_Action_process').on(table.Process, table.ID),
    index('Order_Action_transaction')
      .on(table.TransactionID, table.ID)
      .where(sql`"TransactionID" is not null`),
  ],
)

/** A bulk operation: one action on many runs, which any replica continues. */
export const orderOperation = pgTable(
  'Order_Operation',
  {
    ID: key('ID').primaryKey(),
    Action: text('Action').notNull(),
    Process: key('Process').notNull(),
    /** The body of the request that started the operation: the filter or the ids, `FromStep` and `PerSecond`. */
    Request: jsonb('Request').notNull(),
    DryRun: boolean('DryRun').notNull().default(false),
    Status: text('Status').notNull(),
    /** The reason why the operation is paused or has failed. */
    StatusReason: text('StatusReason'),
    KeyID: text('KeyID').notNull(),
    Person: text('Person'),
    Reason: text('Reason'),
    /** The position after which the operation continues, and the counts of its results so far. */
    Progress: jsonb('Progress').notNull(),
    LeaseOwner: text('LeaseOwner'),
    LeaseUntil: time('LeaseUntil'),
    CreatedAt: time('CreatedAt').notNull().defaultNow(),
    UpdatedAt: time('UpdatedAt').notNull().defaultNow(),
    FinishedAt: time('FinishedAt'),
  },
  (table) => [
    index('Order_Operation_unfinished')
      .on(table.CreatedAt)
      .where(sql`"FinishedAt" is null`),
    index('Order_Operation_newest').on(table.CreatedAt, table.ID),
  ],
)

/** The messages of the queues `dead.<Process>`, until an operator requeues or deletes them. */
export const orderDeadLetter = pgTable(
  'Order_DeadLetter',
  {
    ID: bigint('ID', { mode: 'bigint' }).primaryKey().generatedAlwaysAsIdentity(),
    Process: key('Process').notNull(),
    /** The id of the message. Inserting a message with the same id again changes nothing. */
    MessageID: key('MessageID').notNull(),
    Reason: text('Reason').notNull(),
    At: time('At').notNull().defaultNow(),
    /** The run that a step message names; null for any other message. */
    TransactionID: key('TransactionID'),
    ReplayID: integer('ReplayID'),
    StepName: key('StepName'),
    /** The content, truncated to 64 KiB. */
    Content: bytea('Content').notNull(),
    ContentBytes: integer('ContentBytes').notNull(),
  },
  (table) => [
    index('Order_DeadLetter_process').on(table.Process, table.ID),
    uniqueIndex('Order_DeadLetter_message').on(table.Process, table.MessageID),
  ],
)

/** The calls to targets with limits. A target that has no limits has no row. */
export const orderTarget = pgTable(
  'Order_Target',
  {
    /** Empty for a target that several processes share. */
    Process: key('Process').notNull(),
    Target: key('Target').notNull(),
    /** The earliest time at which the next call may be sent. */
    NextCallAt: time('NextCallAt').notNull(),
    /**
     * For each call in flight, the name of its concurrency slot and the epoch milliseconds at which the slot expires.
     */
    Slots: jsonb('Slots').notNull().default({}),
  },
  (table) => [primaryKey({ columns: [table.Process, table.Target] })],
)

/** The schedules of the processes, and the time at which each schedule is due next. */
export const orderSchedule = pgTable(
  'Order_Schedule',
  {
    Process: key('Process').notNull(),
    Name: key('Name').notNull(),
    Cron: text('Cron').notNull(),
    TimeZone: text('TimeZone').notNull(),
    Each: text('Each').notNull(),
    CatchUp: text('CatchUp').notNull(),
    JitterSeconds: integer('JitterSeconds').notNull(),
    /** The earliest scheduled time that no coordinator has processed yet. */
    NextAt: time('NextAt').notNull(),
    LastAt: time('LastAt'),
    /** The scheduled time for which runs are being queued, one per company; null if there is none. */
    TickAt: time('TickAt'),
    /**
     * The cursor in token-service's list of companies. The runs for `TickAt` are not queued yet for the companies after
     * this position.
     */
    TickCursor: text('TickCursor'),
    PausedAt: time('PausedAt'),
    PausedBy: text('PausedBy'),
    Reason: text('Reason'),
    /**
     * The time at which this schedule was marked as removed, because the definition of the process no longer contained
     * it; null while the process has this schedule.
     */
    RemovedAt: time('RemovedAt'),
    UpdatedAt: time('UpdatedAt').notNull().defaultNow(),
  },
  (table) => [primaryKey({ columns: [table.Process, table.Name] })],
)

/** How far the coordinator has read the change feed of each company. */
export const realmCursor = pgTable(
  'Realm_Cursor',
  {
    Realm: key('Realm').primaryKey(),
    /** Every change before this time was read. */
    Position: time('Position').notNull().defaultNow(),
    /** The time at which the last sweep of the change feed ended; null if there was none. */
    SweptAt: time('SweptAt'),
    /** The number of events that the last sweep has published. */
    Events: integer('Events').notNull().default(0),
    /** A description of what the last sweep could not read; null if it has read everything. */
    Incomplete: text('Incomplete'),
  },
  (table) => [index('Realm_Cursor_position').on(table.Position)],
)

/** Values that exist once per installation, such as the default of the retention. */
export const orderInstallation = pgTable('Order_Installation', {
  Name: key('Name').primaryKey(),
  Value: jsonb('Value').notNull(),
})
