/** Requests that queue one transaction, or a file with a transaction on each line. */
import { Tags } from '@integration-host/shared/contracts/labels'
import { Realm } from '@integration-host/shared/contracts/realm'
import { Reason } from '@integration-host/shared/contracts/reason'
import { parseJson } from '@integration-host/shared/json'
import {
  headerStatuses,
  ReplayID,
  TransactionID,
} from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'

/**
 * The maximum size of the request for one transaction: six times the maximum size of a transaction, because its data is
 * sent as a string with escapes.
 */
export const MAX_QUEUE_BYTES = 6 * 262_144
/**
 * The maximum size of the request for a file of 8 MB in which each character is a quotation mark or a backslash, which
 * JSON escapes.
 */
export const MAX_FILE_BODY_BYTES = 2 * 8_388_608 + 4_096

const Process = z.string().min(1).max(200)

/** The body of `POST /api/queue`. */
export const QueueBody = z
  .strictObject({
    Process,
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
    Status: z.enum(headerStatuses),
    IsNew: z.boolean().meta({ description: 'false: it was there already' }),
    CompanyUnchecked: z.boolean().meta({
      description: 'token-service did not say whether the company exists; false without a company',
    }),
  })
  .meta({ ref: 'QueuedRun' })
export type QueuedRun = z.output<typeof QueuedRun>

/** The body of `POST /api/queue/lines`. */
export const QueueLinesBody = z
  .strictObject({
    Process,
    Lines: z.string().min(1).meta({ description: 'a JSON object of a transaction on each line' }),
  })
  .meta({ ref: 'QueueLinesBody' })

export const lineOutcomes = ['queued', 'absorbed', 'exists', 'conflict', 'invalid'] as const

/** The response of `POST /api/queue/lines`: a result for each line that is not empty, in the order of the lines. */
export const QueuedLines = z
  .object({
    Results: z.array(
      z.object({
        TransactionID: z.string().nullable(),
        Outcome: z.enum(lineOutcomes),
        Errors: z.array(z.string()),
      }),
    ),
  })
  .meta({ ref: 'QueuedLines' })
export type QueuedLines = z.output<typeof QueuedLines>
