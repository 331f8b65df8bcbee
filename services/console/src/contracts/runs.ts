/** The pages of the runs: the list, one run, and the actions on a run. */
import { Reason, Tags } from '@integration-host/shared/contracts/text'
import { RunDetailResponse, RunResponse } from '@integration-host/shared/contracts/run'
import {
  AttemptView,
  HeaderStatusText,
  ItemView,
  ReplayID,
  StepReport,
  TransactionID,
} from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'
import { ActivityEntry } from './activity.ts'
import { CompanyView } from './companies.ts'
import { EntryRow } from './entries.ts'
import { Realm } from '@integration-host/shared/contracts/realm'
import { parseJson } from '@integration-host/shared/json'

const DataRejected = z.boolean().meta({
  description:
    'whether the run has failed because its data was rejected, so that a copy with changes helps',
})
const Why = z.string().meta({ description: 'the state and what helps, in a sentence' })
const Cause = z
  .string()
  .meta({ description: 'the cause of the state in a few words; may be empty' })

export const RunRow = RunResponse.pick({
  Process: true,
  TransactionID: true,
  ReplayID: true,
  Status: true,
  StepName: true,
  Realm: true,
  ErrorClass: true,
  WaitingFor: true,
  InDoubt: true,
  Attempt: true,
  NextAttemptAt: true,
  CreatedAt: true,
  UpdatedAt: true,
})
  .extend({ Why, Cause, DataRejected })
  .meta({ ref: 'RunRow' })
export type RunRow = z.output<typeof RunRow>

export const RunsView = z
  .object({
    Runs: z.array(RunRow),
    Next: z.string().nullable(),
    Companies: z
      .record(z.string(), z.string())
      .meta({ description: 'the names of the companies of these runs, by realm' }),
    Processes: z.array(z.string()).meta({ description: 'the names of all processes' }),
  })
  .meta({ ref: 'Runs' })
export type RunsView = z.output<typeof RunsView>

/** The actions on a run, in the order in which the page shows them. */
export const runActions = ['resume', 'retry', 'replay', 'settle', 'undo', 'cancel'] as const
export type RunAction = (typeof runActions)[number]

/** One run without business data. */
export const RunView = RunDetailResponse.omit({ InitialData: true, Items: true, Attempts: true })
  .extend({
    Why,
    Steps: z.array(z.string()).meta({ description: 'of the process, in order' }),
    Items: z.array(
      ItemView.omit({ ResponseBody: true, Data: true, State: true, Ask: true }).extend({
        Report: StepReport.optional(),
      }),
    ),
    Attempts: z.array(AttemptView),
    Runs: z.array(RunResponse.pick({ ReplayID: true, Status: true, CreatedAt: true })).meta({
      description: 'the runs of the transaction, the latest first',
    }),
    History: z
      .array(
        ActivityEntry.extend({
          Action: z.string().meta({ description: 'the action, as the action log names it' }),
        }),
      )
      .meta({ description: 'who acted on the transaction' }),
    Entries: z.array(EntryRow).meta({
      description:
        'the newest entries of what the runs of the transaction have written to the books',
    }),
    Company: z.string().nullable().meta({
      description: 'the name of the company; null if it has none, or without a company',
    }),
    Broken: CompanyView.pick({ Realm: true, Label: true, CompanyName: true }).nullable().meta({
      description: 'the company that the run waits for, if it must be reconnected',
    }),
    Decision: z
      .object({
        Event: z.string(),
        HasNote: z.boolean(),
        Choices: z.array(
          z.object({ Choice: z.union([z.boolean(), z.string()]), Text: z.string() }),
        ),
      })
      .nullable()
      .meta({ description: 'what a person can choose, if the run waits for a decision' }),
    DataRejected,
    Blocked: z.partialRecord(z.enum(runActions), z.string()).meta({
      description: 'the actions that are not possible now, with the reason',
    }),
  })
  .meta({ ref: 'RunPageView' })
export type RunView = z.output<typeof RunView>

const Excerpt = z
  .object({
    Text: z.string(),
    IsWhole: z.boolean().meta({ description: 'false: Text is the beginning of a longer text' }),
    Bytes: z.int().meta({ description: 'of the whole text' }),
  })
  .nullable()
export type Excerpt = z.output<typeof Excerpt>

/** The texts of a run: its initial data, and the data, the state and the response of a step. */
export const runTexts = ['initial', 'data', 'state', 'response'] as const
export type RunText = (typeof runTexts)[number]

/** The business data of a run, which only operators may read. Data is JSON; a response is the text that was received. */
export const RunDataView = z
  .object({
    ReplayID: z.int(),
    Realm: z.string().nullable(),
    Tags: z.record(z.string(), z.string()).nullable(),
    InitialData: Excerpt,
    Items: z.array(
      z.object({
        StepName: z.string(),
        Data: Excerpt,
        State: Excerpt,
        ResponseBody: Excerpt,
        Ask: z
          .object({
            Title: z.string(),
            Facts: z.array(z.object({ Name: z.string(), Text: z.string() })),
          })
          .nullable()
          .meta({ description: 'what the person is shown who decides' }),
      }),
    ),
  })
  .meta({ ref: 'RunData' })
export type RunDataView = z.output<typeof RunDataView>

/**
 * The body of an action on a run. `Run` and `Version` are the number and the version that the
 * person has seen.
 */
export const RunActionBody = z
  .strictObject({
    Run: z.int().nonnegative(),
    Version: z.int().nonnegative(),
    Reason: Reason.optional(),
    FromStep: z.string().optional().meta({ description: 'of a replay: it begins with this step' }),
    Outcome: z.enum(['done', 'not_done']).optional().meta({ description: 'of a settlement' }),
  })
  .meta({ ref: 'RunAction' })
export type RunActionBody = z.input<typeof RunActionBody>

/** The body of a decision about an event for which a run waits. */
export const DecisionBody = RunActionBody.pick({ Run: true, Version: true, Reason: true })
  .extend({
    Choice: z.union([z.boolean(), z.string().max(100)]),
    Note: z.string().max(2_000).optional(),
  })
  .meta({ ref: 'Decision' })
export type DecisionBody = z.input<typeof DecisionBody>

/** The response of an action: the run that is the latest one after the action. */
export const ActedRun = z.object({ ReplayID: z.int() }).meta({ ref: 'ActedRun' })
export type ActedRun = z.output<typeof ActedRun>

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
