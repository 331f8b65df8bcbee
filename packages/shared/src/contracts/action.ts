import { z } from 'zod'
import { ReplayID } from './transaction.ts'

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
    // The type is a string instead of an enum: during a rolling upgrade, a replica may read a value that only a newer
    // release knows.
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
