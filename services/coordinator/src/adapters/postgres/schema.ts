import { headerStatuses, itemStatuses } from '@integration-host/shared/contracts/transaction'
import { sql } from 'drizzle-orm'
import {
  boolean,
  check,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  bigint,
} from 'drizzle-orm/pg-core'
import { activeStatuses } from '../../transaction/status.ts'

/**
 * The tables are an interface: whoever inserts a row with `Process`, `TransactionID` and `InitialData` has
 * queued a transaction, and a select shows how far it is. Times come from the database's clock only.
 */
const time = (name: string) => timestamp(name, { withTimezone: true, mode: 'string' })

const oneOf = (column: string, values: readonly string[]) =>
  sql.raw(`"${column}" in (${values.map((value) => `'${value}'`).join(', ')})`)

const HEADER_TIMES = [
  'LeaseUntil',
  'StartedAt',
  'NextAttemptAt',
  'NextSweepAt',
  'CreatedAt',
  'UpdatedAt',
  'CompletedAt',
]
/** Years 1 to 9999; neither `infinity` nor BC has a form in ISO 8601. */
const isCalendarTime = (column: string): string =>
  `("${column}" is null or "${column}" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00')`

export const orderHeader = pgTable(
  'Order_Header',
  {
    Process: text('Process').notNull(),
    TransactionID: text('TransactionID').notNull(),
    ReplayID: integer('ReplayID').notNull().default(0),
    Status: text('Status', { enum: headerStatuses }).notNull().default('Queued'),
    /** Empty: the first step of the process. */
    StepName: text('StepName').notNull().default(''),
    InitialData: jsonb('InitialData').notNull(),
    Realm: text('Realm'),
    /** +1 with each transition: the fence. */
    Version: integer('Version').notNull().default(0),
    LeaseOwner: text('LeaseOwner'),
    LeaseUntil: time('LeaseUntil'),
    /** When the attempt in hand began. */
    StartedAt: time('StartedAt'),
    Attempt: integer('Attempt').notNull().default(0),
    /** An attempt of the due step may have done its work, and nobody knows: see `confirm`. */
    InDoubt: boolean('InDoubt').notNull().default(false),
    NextAttemptAt: time('NextAttemptAt').defaultNow(),
    /** When the local pull looks at the row next, and how often it did since the row last moved. */
    NextSweepAt: time('NextSweepAt').notNull().defaultNow(),
    SweepCount: integer('SweepCount').notNull().default(0),
    WaitingFor: text('WaitingFor'),
    LastError: text('LastError'),
    ErrorClass: text('ErrorClass'),
    CreatedAt: time('CreatedAt').notNull().defaultNow(),
    UpdatedAt: time('UpdatedAt').notNull().defaultNow(),
    CompletedAt: time('CompletedAt'),
  },
  (table) => [
    primaryKey({ columns: [table.Process, table.TransactionID, table.ReplayID] }),
    check('Order_Header_Status', oneOf('Status', headerStatuses)),
    // Rows come from other hands as well: one that nobody can read would stop the pull for its neighbours.
    check(
      'Order_Header_numbers',
      sql`"ReplayID" >= 0 and "Version" >= 0 and "Attempt" >= 0 and "SweepCount" between 0 and 1000000`,
    ),
    check('Order_Header_times', sql.raw(HEADER_TIMES.map(isCalendarTime).join(' and '))),
    // Both small however many runs are finished: cost must not grow with history.
    index('Order_Header_due').on(table.NextSweepAt).where(oneOf('Status', activeStatuses)),
    index('Order_Header_waiting')
      .on(table.WaitingFor)
      .where(sql`"Status" = 'Waiting'`),
    index('Order_Header_newest').on(
      table.Process,
      table.CreatedAt,
      table.TransactionID,
      table.ReplayID,
    ),
    index('Order_Header_updated').on(table.UpdatedAt),
  ],
)

export const orderItem = pgTable(
  'Order_Item',
  {
    Process: text('Process').notNull(),
    TransactionID: text('TransactionID').notNull(),
    ReplayID: integer('ReplayID').notNull(),
    StepName: text('StepName').notNull(),
    Status: text('Status', { enum: itemStatuses }).notNull(),
    Attempt: integer('Attempt').notNull().default(0),
    IdempotencyKey: text('IdempotencyKey').notNull(),
    ResponseStatus: integer('ResponseStatus'),
    ResponseBody: text('ResponseBody'),
    Data: jsonb('Data'),
    Error: text('Error'),
    StartedAt: time('StartedAt'),
    FinishedAt: time('FinishedAt'),
  },
  (table) => [
    primaryKey({
      columns: [table.Process, table.TransactionID, table.ReplayID, table.StepName],
    }),
    check('Order_Item_Status', oneOf('Status', itemStatuses)),
    index('Order_Item_finished').on(table.FinishedAt),
  ],
)

export const orderAttempt = pgTable(
  'Order_Attempt',
  {
    ID: bigint('ID', { mode: 'bigint' }).generatedAlwaysAsIdentity().primaryKey(),
    Process: text('Process').notNull(),
    TransactionID: text('TransactionID').notNull(),
    ReplayID: integer('ReplayID').notNull(),
    StepName: text('StepName').notNull(),
    Attempt: integer('Attempt').notNull(),
    Outcome: text('Outcome').notNull(),
    ResponseStatus: integer('ResponseStatus'),
    Error: text('Error'),
    StartedAt: time('StartedAt').notNull(),
    FinishedAt: time('FinishedAt'),
  },
  (table) => [index('Order_Attempt_run').on(table.Process, table.TransactionID, table.ReplayID)],
)

export const orderProcess = pgTable('Order_Process', {
  Process: text('Process').primaryKey(),
  Paused: boolean('Paused').notNull().default(false),
  UpdatedAt: time('UpdatedAt').notNull().defaultNow(),
})
