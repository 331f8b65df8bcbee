/**
 * What operators do and see: bulk operations, the action log, dead letters, erasures, and the open work of a key. Actions
 * and outcomes are strings instead of enums, because during an upgrade a replica may read a value of a newer release.
 */
import { z } from 'zod'
import { Reason } from './text.ts'
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

/** An entry of the action log of the coordinator. It contains no initial data and no other business data. */
export const ActionView = z
  .object({
    ID: z.int().positive().meta({ description: 'grows from entry to entry' }),
    At: z.iso.datetime(),
    KeyID: z.string().meta({ description: 'the id of the service key of the caller' }),
    Person: z
      .string()
      .nullable()
      .meta({ description: 'the person for whom the caller acted (header Acting-For)' }),
    Action: z.string().meta({
      description:
        'queue, replay, resume, cancel, retry, settle, signal, link, undo, erase or pause; resume and pause without a TransactionID are those of the process; start_operation, stop_operation and continue_operation are those of a bulk operation; pause_schedule, resume_schedule and run_schedule are those of a schedule, whose name and time are the TransactionID; purge and forget are those of the retention; requeue_dead_letter, delete_dead_letter and delete_dead_letters those of dead letters; export, read_data, read_dead_letter and read_dead_letters are reads of data, whose filter is the Reason',
    }),
    Process: z.string(),
    TransactionID: z.string().nullable(),
    ReplayID: ReplayID.nullable().meta({ description: 'the run; for a replay, the new run' }),
    Realm: z.string().nullable(),
    Reason: z.string().nullable(),
    Outcome: z.string().meta({
      description:
        'done, or the problem code of the rejection; of a settle, done or not_done; of a queue, absorbed if a waiting run has taken over the data',
    }),
    OperationID: z.string().nullable().meta({
      description: 'the bulk operation to which the action belongs; null for a single one',
    }),
  })
  .meta({ ref: 'Action' })
export type ActionView = z.output<typeof ActionView>

/** The response of `GET /actions`, newest first. */
export const ActionPage = z
  .object({
    items: z.array(ActionView),
    next_before: z.int().positive().nullable().meta({
      description: 'the next page begins with `before` set to this; null if there is none',
    }),
  })
  .meta({ ref: 'ActionPage' })
export type ActionPage = z.output<typeof ActionPage>

/** A message that a business process could not process. */
export const DeadLetterView = z
  .object({
    ID: z.int().positive().meta({ description: 'grows from one to the next' }),
    Process: z.string(),
    MessageID: z.string().meta({
      description:
        'the id of the message and a digest of its content; only a digest if it has no id',
    }),
    Reason: z.string().meta({
      description:
        'malformed, wrong_queue, unknown_process, unknown_step, unknown_transaction, or the reason of the broker, such as delivery_limit. Of a start message: malformed, invalid_request, input_invalid, payload_too_large, transaction_conflict, failed or delivery_limit, most with details after a colon',
    }),
    At: z.iso.datetime().meta({ description: 'when it was stored' }),
    TransactionID: z.string().nullable().meta({
      description:
        'the run that the message names; null, as ReplayID and StepName, if it names none',
    }),
    ReplayID: ReplayID.nullable(),
    StepName: z.string().nullable(),
    Content: z.string(),
    Encoding: z.enum(['text', 'base64']).meta({
      description: 'of Content: base64 if it is not UTF-8',
    }),
    ContentBytes: z.int().nonnegative().meta({
      description:
        'the length of the whole content: a list has the first 1,024 bytes, one dead letter the first 65,536',
    }),
  })
  .meta({ ref: 'DeadLetter' })
export type DeadLetterView = z.output<typeof DeadLetterView>

/** The response of `GET /processes/{process}/dead-letters`, newest first. */
export const DeadLetterPage = z
  .object({
    items: z.array(DeadLetterView),
    next_cursor: z.string().nullable(),
  })
  .meta({ ref: 'DeadLetterPage' })
export type DeadLetterPage = z.output<typeof DeadLetterPage>

/** The response of `DELETE /processes/{process}/dead-letters`. */
export const DeletedDeadLetters = z
  .object({ Deleted: z.int().nonnegative() })
  .meta({ ref: 'DeletedDeadLetters' })

/**
 * The response of `POST /erasures`. The member `more` says whether further runs have to be erased. All other members
 * are counts.
 */
export const ErasureResult = z
  .object({
    erased: z.int().meta({ description: 'runs whose data was blanked by this request' }),
    files: z.int().meta({ description: 'files of these runs that were removed' }),
    filesLeft: z.int().meta({
      description:
        'runs that keep their data, because a file could not be removed; the log says why. Send the request again',
    }),
    more: z.boolean().meta({ description: 'runs are left: send the same request again' }),
    notEnded: z.int().meta({
      description:
        'runs that have not ended, or were cancelled during an attempt less than 30 seconds ago, and keep their data: ' +
        'send the request again when they have',
    }),
    unknown: z.int().meta({ description: 'Ids without a run' }),
  })
  .meta({ ref: 'ErasureResult' })
export type ErasureResult = z.output<typeof ErasureResult>

/** What a key has made that has not ended: the responses of `/keys/{id}/open` of token-service and coordinator. */

export const OpenLinks = z
  .object({ ConnectLinks: z.int().nonnegative() })
  .meta({ ref: 'OpenLinksOfKey' })
export const OpenOperations = z
  .object({ Operations: z.int().nonnegative() })
  .meta({ ref: 'OpenOperationsOfKey' })
