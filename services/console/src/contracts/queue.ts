/** Requests that queue a transaction. */
import { Tags, Reason } from '@integration-host/shared/contracts/text'
import { Realm } from '@integration-host/shared/contracts/realm'
import { parseJson } from '@integration-host/shared/json'
import {
  HeaderStatusText,
  ReplayID,
  TransactionID,
} from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'

/**
 * The maximum size of the request for one transaction: six times the maximum size of a transaction, because its data is
 * sent as a string with escapes.
 */
export const MAX_QUEUE_BYTES = 6 * 262_144

/** The body of `POST /api/queue`. */
export const QueueBody = z
  .strictObject({
    Process: z.string().min(1).max(200),
    TransactionID,
    Realm: Realm.optional(),
    Tags: Tags.optional(),
    Data: z
      .string()
      .refine((text) => parseJson(text) !== undefined, 'must be JSON')
      .meta({
        description:
          'the initial data as JSON text, so that the coordinator gets every digit of a number',
      }),
    Reason: Reason.optional(),
  })
  .meta({ ref: 'QueueBody' })
export type QueueBody = z.input<typeof QueueBody>

/** The response of `POST /api/queue`. */
export const QueuedRun = z
  .object({
    ReplayID,
    Status: HeaderStatusText,
    IsNew: z.boolean().meta({ description: 'false: it was there already' }),
    CompanyUnchecked: z.boolean().meta({
      description: 'token-service did not say whether the company exists; false without a company',
    }),
  })
  .meta({ ref: 'QueuedRun' })
export type QueuedRun = z.output<typeof QueuedRun>
