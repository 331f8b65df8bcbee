import { z } from 'zod'
import { Reason } from './reason.ts'
import { RunFilter } from './run-filter.ts'
import { HeaderStatusText, ReplayID, TransactionID } from './transaction.ts'

/** The action that a bulk operation applies to each of its runs. */
export const bulkActions = ['resume', 'cancel', 'replay', 'retry', 'take-back'] as const
export type BulkAction = (typeof bulkActions)[number]

/**
 * The statuses of a bulk operation. A `Paused` operation waits until it is continued. The last three statuses are
 * final.
 */
export const operationStatuses = ['Running', 'Paused', 'Completed', 'Stopped'] as const
export type OperationStatus = (typeof operationStatuses)[number]

const MAX_OPERATION_IDS = 10_000
const MAX_PER_SECOND = 1_000
/** The maximum number of failed runs that an operation lists. The number of all failed runs is counted separately. */
export const MAX_LISTED_FAILURES = 1_000
export const MAX_LISTED_MATCHES = 100

const ids = z.array(TransactionID).min(1).max(MAX_OPERATION_IDS)

/** The body of `POST /operations`. */
export const StartOperation = z
  .strictObject({
    Action: z.enum(bulkActions),
    Process: z.string().min(1).max(200),
    Filter: RunFilter.optional().meta({ description: 'the runs, as in the list of transactions' }),
    Ids: ids.optional().meta({ description: 'transactions; the latest run of each' }),
    FromStep: z
      .string()
      .min(1)
      .max(200)
      .optional()
      .meta({ description: 'the step at which replays start' }),
    Reason: Reason,
    PerSecond: z
      .int()
      .min(1)
      .max(MAX_PER_SECOND)
      .default(50)
      .meta({ description: 'runs a second' }),
    DryRun: z.boolean().default(false).meta({ description: 'counts the runs and changes nothing' }),
  })
  .refine(({ Filter, Ids }) => (Filter === undefined) !== (Ids === undefined), {
    error: 'give either Filter or Ids',
    path: ['Filter'],
  })
  .refine(({ FromStep, Action }) => FromStep === undefined || Action === 'replay', {
    error: 'is allowed only with the action replay',
    path: ['FromStep'],
  })
  .meta({ ref: 'StartOperation' })
export type StartOperation = z.output<typeof StartOperation>

/**
 * The id of a run on which the operation acts. `ReplayID` is `null` if the request named only the transaction and the
 * transaction has no run.
 */
const NamedRun = z.object({ TransactionID: z.string(), ReplayID: ReplayID.nullable() })

/** A bulk operation as the API shows it. The ids in its request are left out; `IdCount` is their number. */
export const OperationView = z
  .object({
    ID: z.string(),
    // The type is a string instead of an enum: during a rolling upgrade, a replica may read a value that only a newer
    // release knows.
    Action: z.string().meta({ description: bulkActions.join(', ') }),
    Process: z.string(),
    Filter: z.record(z.string(), z.unknown()).nullable(),
    IdCount: z
      .int()
      .nullable()
      .meta({ description: 'how many ids the request has; null with Filter' }),
    FromStep: z.string().nullable(),
    PerSecond: z.int(),
    DryRun: z.boolean(),
    Status: z.string().meta({ description: operationStatuses.join(', ') }),
    StatusReason: z.string().nullable().meta({
      description:
        'of a paused operation: the problem code that paused it; `key_ended` of one that was stopped because its key has ended',
    }),
    KeyID: z.string(),
    Person: z.string().nullable(),
    Reason: z.string().nullable(),
    Done: z.int().meta({ description: 'runs that were changed; of a dry run: that would be' }),
    Skipped: z.int().meta({ description: 'runs whose state does not allow the action' }),
    Failed: z.int(),
    FailedByCode: z.record(z.string(), z.int()),
    CreatedAt: z.iso.datetime(),
    UpdatedAt: z.iso.datetime(),
    FinishedAt: z.iso.datetime().nullable(),
  })
  .meta({ ref: 'Operation' })
export type OperationView = z.output<typeof OperationView>

/** The response of `GET /operations/{id}`. */
export const OperationDetail = OperationView.extend({
  Failures: z
    .array(NamedRun.extend({ Code: z.string() }))
    .meta({ description: `the first ${MAX_LISTED_FAILURES} runs that failed` }),
  Matches: z
    .array(NamedRun.extend({ Status: HeaderStatusText }))
    .meta({ description: `of a dry run: the first ${MAX_LISTED_MATCHES} runs` }),
}).meta({ ref: 'OperationDetail' })
export type OperationDetail = z.output<typeof OperationDetail>

/** An object that an operation with the action `take-back` takes back, in `GET /operations/{id}/objects`. */
export const TakenObject = z
  .object({
    TransactionID: z.string().meta({ description: 'the run of the process TakeBack' }),
    Realm: z.string(),
    Entity: z.string(),
    EntityID: z.string(),
    // Both are strings, because during an upgrade a replica may read a value that only a newer release knows.
    Outcome: z.string().meta({
      description:
        'deleted, inactivated, left (see Reason), failed (Reason has the error class) or pending. Of a dry run: what would become of it',
    }),
    Reason: z.string().nullable().meta({
      description:
        'why an object is left: changed_outside, paid, linked, books_closed, gone, run_active, run_in_doubt, unproven (nothing to compare with), not_supported, refused (by the provider)',
    }),
    Fields: z
      .array(z.string())
      .nullable()
      .meta({ description: 'the fields that were changed outside' }),
  })
  .meta({ ref: 'TakenObject' })
export type TakenObject = z.output<typeof TakenObject>

export const TakenObjectPage = z
  .object({ items: z.array(TakenObject), next_cursor: z.string().nullable() })
  .meta({ ref: 'TakenObjectPage' })
export type TakenObjectPage = z.output<typeof TakenObjectPage>

export const OperationPage = z
  .object({
    items: z.array(OperationView),
    next_cursor: z.string().nullable(),
  })
  .meta({ ref: 'OperationPage' })
export type OperationPage = z.output<typeof OperationPage>
