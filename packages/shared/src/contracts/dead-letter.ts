import { z } from 'zod'
import { ReplayID } from './transaction.ts'

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
