import { z } from 'zod'
import { Tags, Reason, plainText } from './text.ts'
import { Realm } from './realm.ts'

/** The priorities of runs, as clients name them. */
export const priorities = ['normal', 'high'] as const

/**
 * How soon a run gets its turn. Runs with `high` get four of five deliveries while both kinds wait, and free slots
 * first. The default is `normal`.
 */
export const Priority = z.enum(priorities, 'must be normal or high')
export type Priority = z.output<typeof Priority>

/** A year of 365 days, in seconds: the longest time for which a run can be delayed. */
const MAX_DELAY_SECONDS = 31_536_000

const RULE = `must be a time of RFC 3339 with an offset, or a whole number of seconds from 0 to ${MAX_DELAY_SECONDS}`
const Time = z.iso.datetime({ offset: true })
const isDelay = (seconds: number): boolean =>
  Number.isInteger(seconds) && seconds >= 0 && seconds <= MAX_DELAY_SECONDS

/**
 * The time before which a run does not start: a time of RFC 3339, or a number of seconds after the transaction is
 * stored. A time in the past does not delay the run.
 */
export const NotBefore = z
  .union([z.number(), z.string()], { error: RULE })
  .refine((at) => (typeof at === 'number' ? isDelay(at) : Time.safeParse(at).success), {
    error: RULE,
    abort: true,
  })
  .refine(
    (at) => typeof at === 'number' || Date.parse(at) - Date.now() <= MAX_DELAY_SECONDS * 1_000,
    'must be at most a year ahead',
  )
  .meta({
    description:
      'the time before which the run does not start (RFC 3339), or seconds from now; at most a year ahead',
    examples: ['2027-01-31T02:00:00-05:00', 90],
  })
export type NotBefore = z.output<typeof NotBefore>

/** The factor between `Seconds` and `MaxSeconds` if a request does not contain `MaxSeconds`. */
const DEFAULT_MAX_FACTOR = 10

const seconds = z
  .int('must be a whole number of seconds')
  .min(1, 'must be at least 1')
  .max(MAX_DELAY_SECONDS, `must be at most ${MAX_DELAY_SECONDS}`)

/**
 * Several requests with the same `Key` start only one run. If a run of this key still waits for its start, a new
 * request replaces the run's initial data. The start of the run then moves to `Seconds` after the new request, but at
 * most to `MaxSeconds` after the first request.
 */
export const Debounce = z
  .strictObject({
    Key: plainText(128),
    Seconds: seconds,
    MaxSeconds: seconds.optional(),
  })
  .refine(({ Seconds, MaxSeconds = Seconds }) => MaxSeconds >= Seconds, {
    path: ['MaxSeconds'],
    error: 'must not be less than Seconds',
  })
  .meta({
    description:
      'requests of the same key, process and realm start one run with the data of the last one; MaxSeconds is 10 times Seconds if it is missing',
    examples: [{ Key: 'Invoice-129', Seconds: 30, MaxSeconds: 300 }],
  })
export type Debounce = z.output<typeof Debounce>

/** Returns `MaxSeconds`, or its default value if it is absent. */
export const maxSecondsOf = ({ Seconds, MaxSeconds }: Debounce): number =>
  MaxSeconds ?? Math.min(Seconds * DEFAULT_MAX_FACTOR, MAX_DELAY_SECONDS)

/** The statuses of a run, as stored in the database. docs/glossary.md explains them. */
export const headerStatuses = [
  'Queued',
  'Running',
  'Retrying',
  'Waiting',
  'Completed',
  'Failed',
  'Cancelled',
  'Undoing',
  'Undone',
  'UndoFailed',
] as const
export type HeaderStatus = (typeof headerStatuses)[number]

export const itemStatuses = [
  'Running',
  'Retrying',
  'Waiting',
  'InDoubt',
  'Completed',
  'Failed',
  'Cancelled',
  'Copied',
  'Received',
  'Skipped',
  'Undone',
] as const
export type ItemStatus = (typeof itemStatuses)[number]

/**
 * The schema of a status in a response or an event. A later release may know further values, which clients read as text. The
 * type has only the known ones, because the coordinator sends no others.
 */
const readAsText = <const Value extends string>(known: readonly Value[]) =>
  z.string().meta({ enum: known }) as unknown as z.ZodType<Value>
export const HeaderStatusText = readAsText(headerStatuses)

/** The identifier that the client gives to a transaction: 1-128 characters, no control characters. */
export const TransactionID = plainText(128)
  // A transaction with the identifier `.` or `..` could never be requested, because clients remove such a segment at
  // the end of a URL.
  .refine((id) => id !== '.' && id !== '..', 'must not be . or ..')
  .meta({ examples: ['66'] })

/** The number of a run: 0 for the first run of a transaction, then 1, 2, … */
export const ReplayID = z.int().min(0).max(2_147_483_647)

/**
 * The name of a business process or of a step. The name becomes a part of queue names, so only plain characters are
 * allowed.
 */
export const StepName = z.string().regex(/^[A-Za-z][A-Za-z0-9_-]{0,63}$/)

/**
 * Accepts any value that `JSON.parse` returns, without copying the value. `z.json()` would copy the value and lose a
 * member named `__proto__`. The cast is sound, because all values come from `JSON.parse`.
 */
export const AnyJson = z
  .unknown()
  .refine((data) => data !== undefined, 'is missing')
  .meta({
    ref: 'Json',
    description:
      'any JSON value; the values are kept, but not spaces, the order of members, the form of a number (1.10), or the first of two equal member names',
  }) as unknown as z.ZodType<z.core.util.JSONType>

/** The body of `POST /processes/{process}/transactions`. */
export const QueueTransaction = z
  .strictObject({
    TransactionID,
    InitialData: AnyJson,
    Realm: Realm.optional(),
    /** Tags, by which runs can be found. Every replay keeps the tags. */
    Tags: Tags.optional(),
    /** `NotBefore` is not compared with the stored value if the same transaction is queued a second time. */
    NotBefore: NotBefore.optional(),
    Debounce: Debounce.optional(),
    /** The default is `normal`. Every replay keeps the priority. It is not compared if the same transaction is queued again. */
    Priority: Priority.optional(),
    /** The reason is stored only in the action log; it is not part of the transaction. */
    Reason: Reason.optional(),
  })
  .meta({
    ref: 'QueueTransaction',
    examples: [{ TransactionID: '66', InitialData: '66' }],
  })
export type QueueTransaction = z.output<typeof QueueTransaction>

export const HeaderView = z.object({
  Process: z.string(),
  TransactionID: z.string(),
  ReplayID,
  Status: HeaderStatusText,
  StepName: z.string(),
  InitialData: AnyJson,
  Realm: z.string().nullable(),
  Version: z.int().nonnegative(),
  Attempt: z.int().nonnegative(),
  NextAttemptAt: z.iso.datetime().nullable(),
  LastError: z.string().nullable(),
  CreatedAt: z.iso.datetime(),
  UpdatedAt: z.iso.datetime(),
  CompletedAt: z.iso.datetime().nullable(),
})
export type HeaderView = z.output<typeof HeaderView>

/** Who has sent an event: the service key, the person for whom it acted, the reason, and the id of the event. */
export const Sender = z
  .object({
    KeyID: z.string(),
    Person: z.string().nullable(),
    Reason: z.string().nullable(),
    EventID: z.string().nullable(),
  })
  .meta({ ref: 'Sender' })
export type Sender = z.output<typeof Sender>

/** The progress that a step has reported, as the member `Report` of its item. */
export const StepReport = z
  .object({ Done: z.number(), Of: z.number(), Note: z.string().nullable(), At: z.iso.datetime() })
  .meta({ ref: 'StepReport' })
export type StepReport = z.output<typeof StepReport>

export const ItemView = z
  .object({
    StepName: z.string(),
    Status: readAsText(itemStatuses),
    Attempt: z.int().nonnegative(),
    IdempotencyKey: z.string(),
    ResponseStatus: z.int().nullable(),
    ResponseBody: z.string().nullable(),
    Data: AnyJson.nullable(),
    Error: z.string().nullable(),
    StartedAt: z.iso.datetime().nullable(),
    FinishedAt: z.iso.datetime().nullable(),
    State: AnyJson.optional().meta({
      description: 'the state with which a repeated step starts its next round',
    }),
    Round: z.int().nonnegative().optional().meta({
      description: 'the number of the round of a repeated step',
    }),
    Report: AnyJson.optional().meta({
      description: 'the progress that the step has reported last: a StepReport',
    }),
    Ask: AnyJson.optional().meta({
      description: 'what is shown to the person who decides about an event',
    }),
    Sender: Sender.optional().meta({ description: 'who has sent an event' }),
  })
  .meta({ ref: 'Item' })
export type ItemView = z.output<typeof ItemView>

export const AttemptView = z
  .object({
    StepName: z.string(),
    Attempt: z.int().nonnegative(),
    Outcome: z.string(),
    ResponseStatus: z.int().nullable(),
    Error: z.string().nullable(),
    /** The last HTTP call of the attempt, without the query of its URL. */
    Request: z.object({ Method: z.string(), Url: z.string() }).nullable().default(null),
    TraceId: z.string().nullable().default(null),
    /** The id by which the provider identifies the response: the header `intuit_tid`, or else `X-Request-Id`. */
    ResponseId: z.string().nullable().default(null),
    StartedAt: z.iso.datetime(),
    FinishedAt: z.iso.datetime().nullable(),
  })
  .meta({ ref: 'Attempt' })
export type AttemptView = z.output<typeof AttemptView>

/** The members of a run, its items and attempts that clients need who accept a coordinator of any release. */
export const TransactionView = HeaderView.extend({
  Items: z.array(ItemView),
  Attempts: z.array(AttemptView),
})
export type TransactionView = z.output<typeof TransactionView>
