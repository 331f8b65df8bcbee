/** The runs as the API of the coordinator shows them, and the request bodies of the actions on a run. */
import { z } from 'zod'
import {
  Priority,
  AnyJson,
  AttemptView,
  HeaderView,
  ItemView,
  TransactionID,
} from './transaction.ts'
import { Reason } from './text.ts'
import { CredentialName, realmOf } from './realm.ts'

/** The parent of a child: the run that has started it, and the place of its process. */
const ParentView = HeaderView.pick({ Process: true, TransactionID: true, ReplayID: true })
  .extend({ Place: z.string() })
  .meta({ ref: 'Parent' })
/** The children that a place of a run has started, as counts. */
export const FamilyView = z
  .object({
    Place: z.string(),
    Process: z.string().meta({ description: 'the process of the children' }),
    IsLoaded: z.boolean().meta({
      description: 'false: the process of the children is not loaded, so they wait',
    }),
    IdPrefix: z.string().meta({ description: 'how the ids of the children begin' }),
    Total: z.int().nonnegative().meta({ description: 'the length of the list' }),
    Active: z.int().nonnegative().meta({ description: 'children that have not ended' }),
    Waiting: z.int().nonnegative().meta({
      description: 'those of the active children that wait for their turn',
    }),
    Completed: z.int().nonnegative(),
    Failed: z.int().nonnegative().meta({
      description: 'children that have ended without being completed',
    }),
    Tolerated: z.int().nonnegative().meta({ description: 'how many may fail' }),
    Concurrent: z.int().positive().nullable().meta({
      description: 'how many run at the same time; null without limit',
    }),
  })
  .meta({ ref: 'Family' })
export type FamilyView = z.output<typeof FamilyView>
/** A child in the list of the children of a run. */
const ChildView = HeaderView.pick({
  Process: true,
  TransactionID: true,
  ReplayID: true,
  Status: true,
  StepName: true,
  Realm: true,
  LastError: true,
})
  .extend({
    Item: z.int().nonnegative().meta({ description: 'the position in the list, from 0' }),
    ItemID: z.string(),
    ErrorClass: z.string().nullable(),
  })
  .meta({ ref: 'Child' })
/** The response of `GET …/transactions/{id}/children`. */
export const ChildPage = z
  .object({
    items: z.array(ChildView),
    next_after: z.int().nullable().meta({ description: '`after` of the next page' }),
  })
  .meta({ ref: 'ChildPage' })
export type ChildPage = z.output<typeof ChildPage>

export const RunResponse = HeaderView.extend({
  ErrorClass: z.string().nullable(),
  WaitingFor: z.string().nullable().meta({
    description:
      'a credential, `concurrency` for a slot of the process, `paused:<realm>` for the resume of its company, `books:<realm>` for the books of its company to be opened, `event:<name>` for an event, `change:<name>` for a change in the books, `children:<name>` for its children, or `turn:<name>` for its turn as a child',
  }),
  InDoubt: z.boolean().meta({
    description: 'an earlier attempt of the due step may have done its work',
  }),
  DefinitionVersion: z.string().nullable().meta({
    description: 'the version that the process had when the run began; null if it had none',
  }),
  DeadlineAt: z.iso.datetime().nullable().meta({
    description:
      'when the run fails as deadline_exceeded unless it has ended; null without deadline',
  }),
  NotBefore: z.iso.datetime().nullable().meta({
    description:
      'the time before which the run does not start; null without delay, and after an operator has started the run',
  }),
  DebounceKey: z.string().nullable().meta({
    description: 'the key of Debounce with which the transaction was queued',
  }),
  Absorbed: z.int().nonnegative().meta({
    description:
      'how many later requests with the same key have replaced the initial data of the run before it started',
  }),
  Tags: z.record(z.string(), z.string()).nullable(),
  // A console of this release may read a coordinator of an earlier one, which sends no priority.
  Priority: Priority.default('normal').meta({
    description: '`high` runs get their turns before the others; `normal` by default',
  }),
  ConcurrencyKey: z.string().nullable().meta({
    description: 'the key for which the limit of the process holds',
  }),
  InputChanged: z.boolean().meta({
    description: 'this replay has other initial data than the run before it',
  }),
  Parent: ParentView.optional().meta({
    description: 'the run that has started this run as one of its children; only of children',
  }),
  ErasedAt: z.iso.datetime().nullable().meta({
    description: 'when an erasure has blanked the data of the run',
  }),
  PurgedAt: z.iso.datetime().nullable().meta({
    description: 'when retention has removed the data of the run; only its id and status are left',
  }),
}).meta({ ref: 'Run' })
export type RunResponse = z.output<typeof RunResponse>
/**
 * The response of `GET …/transactions/{id}`: the run, its lease, its step items, and its newest attempts in the order
 * in which they ran.
 */
export const RunDetailResponse = RunResponse.extend({
  LeaseOwner: z.string().nullable().meta({ description: 'the replica that runs the due step now' }),
  LeaseUntil: z.iso.datetime().nullable(),
  StartedAt: z.iso.datetime().nullable().meta({ description: 'start of the attempt in flight' }),
  Children: z.array(FamilyView).optional().meta({
    description: 'the children of the run by place; missing if it has started none',
  }),
  Items: z.array(ItemView),
  Attempts: z.array(AttemptView),
  AttemptCount: z.int().nonnegative().meta({ description: 'all attempts' }),
}).meta({ ref: 'Transaction' })
export type RunDetailResponse = z.output<typeof RunDetailResponse>

/** The request body of an action on a run. The body may be missing. */
export const ActBody = z.strictObject({ Reason: Reason.optional() }).meta({ ref: 'ActionReason' })
/** The request body of `POST …/transactions/{id}/replays`. The body may be missing. */
export const ReplayTransaction = ActBody.extend({
  fromStep: z.string().optional(),
  InitialData: AnyJson.optional(),
})
export type ReplayTransaction = z.output<typeof ReplayTransaction>
/** The request body of `POST …/transactions/{id}/events/{name}`. */
export const SignalTransaction = ActBody.extend({
  EventID: TransactionID.optional().meta({
    description: 'the id of the event; a repetition with this id is not an error',
  }),
  Data: AnyJson.optional().meta({ description: 'the data of the event; null by default' }),
}).meta({ ref: 'SignalTransaction' })
export type SignalTransaction = z.output<typeof SignalTransaction>
/** The response of `POST …/transactions/{id}/events/{name}`: the run, and the event that its place keeps. */
export const SignalResponse = HeaderView.pick({
  Process: true,
  TransactionID: true,
  ReplayID: true,
  Status: true,
  Version: true,
})
  .extend({
    Item: ItemView.pick({
      StepName: true,
      Status: true,
      Data: true,
      FinishedAt: true,
      Sender: true,
    })
      .partial({ Data: true })
      .meta({
        ref: 'ReceivedEvent',
        description:
          'The first event of the place. `Received`: the run has not got there yet. `Data` is missing for a key without `transactions:read`.',
      }),
  })
  .meta({ ref: 'Signal' })
export type SignalResponse = z.output<typeof SignalResponse>

/** What a run waits for, and its name: a credential, a slot (`concurrency`), or a place such as `event:<name>`. */
export interface Waiting {
  readonly kind: string
  readonly name: string
}

/**
 * Returns what a run waits for; `null` if it waits for nothing that is named. A later release may add kinds with a colon,
 * which are returned as they are, so only a name without a colon is that of a credential.
 */
export function readWaitingFor(waitingFor: string | null): Waiting | null {
  if (waitingFor === null) return null
  if (waitingFor === 'concurrency') return { kind: 'concurrency', name: '' }
  const colon = waitingFor.indexOf(':')
  return colon === -1
    ? { kind: 'credential', name: waitingFor }
    : { kind: waitingFor.slice(0, colon), name: waitingFor.slice(colon + 1) }
}

/**
 * Returns the realm of the company that a run waits for: for its credential, its books or its resume; `null` if the run
 * does not wait for a company.
 */
export function realmWaitedFor(waitingFor: string | null): string | null {
  const waiting = readWaitingFor(waitingFor)
  if (waiting?.kind === 'books' || waiting?.kind === 'paused') return waiting.name
  return waiting?.kind === 'credential' && CredentialName.safeParse(waiting.name).success
    ? realmOf(waiting.name)
    : null
}
