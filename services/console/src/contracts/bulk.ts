/** Actions on many runs. The coordinator executes each of them as a bulk operation. */
import {
  OperationDetail,
  OperationView,
  TakenObjectPage,
} from '@integration-host/shared/contracts/operations'
import { Reason } from '@integration-host/shared/contracts/text'
import { RunFilter } from '@integration-host/shared/contracts/run-filter'
import { TransactionID } from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'

/** The actions on many runs, in the order in which the page shows them. */
export const bulkActions = ['resume', 'replay', 'cancel', 'take-back'] as const
export type BulkAction = (typeof bulkActions)[number]

/** The maximum number of runs that a person can select one by one. */
const MAX_SELECTED = 1_000
/**
 * The maximum number of runs per second. The coordinator accepts a higher number, but the called
 * services may not.
 */
const MAX_PER_SECOND = 100

/** The body of `POST /api/bulk`. `DryRun` counts the runs and changes nothing. */
export const StartBulk = z
  .strictObject({
    Action: z.enum(bulkActions),
    Process: z.string().min(1).max(200),
    Filter: RunFilter.optional(),
    Ids: z.array(TransactionID).min(1).max(MAX_SELECTED).optional(),
    Reason: Reason.optional().meta({ description: 'required unless DryRun is true' }),
    PerSecond: z.int().min(1).max(MAX_PER_SECOND).default(20),
    DryRun: z.boolean().default(false),
  })
  .refine(({ Filter, Ids }) => (Filter === undefined) !== (Ids === undefined), {
    error: 'give either Filter or Ids',
    path: ['Filter'],
  })
  .refine(({ DryRun, Reason: reason }) => DryRun || reason !== undefined, {
    error: 'is required',
    path: ['Reason'],
  })
  .meta({ ref: 'StartBulk' })
export type StartBulk = z.input<typeof StartBulk>

export const BulkView = OperationDetail.omit({ Matches: true }).meta({ ref: 'Bulk' })
export type BulkView = z.output<typeof BulkView>

/** What becomes of the objects that an action takes back. */
export const BulkObjects = TakenObjectPage.extend({
  Companies: z
    .record(z.string(), z.string())
    .meta({ description: 'the names of the companies of these objects, by realm' }),
}).meta({ ref: 'BulkObjects' })
export type BulkObjects = z.output<typeof BulkObjects>

export const BulkList = z.object({ Operations: z.array(OperationView) }).meta({ ref: 'BulkList' })
export type BulkList = z.output<typeof BulkList>

export const bulkChanges = ['stop', 'continue'] as const
