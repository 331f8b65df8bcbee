/** The pages of the processes, their schedules and their dead letters. */
import { DeadLetterPage } from '@integration-host/shared/contracts/operations'
import { Reason } from '@integration-host/shared/contracts/text'
import { ScheduleView } from '@integration-host/shared/contracts/schedule'
import { z } from 'zod'

export const ProcessView = z
  .object({
    Process: z.string(),
    Steps: z.array(z.string()),
    RequireInternet: z.boolean(),
    Paused: z.boolean(),
    PausedAt: z.iso.datetime().nullable(),
    PausedBy: z.string().nullable(),
    Reason: z.string().nullable(),
    Version: z.string().nullable(),
    BuiltIn: z.boolean(),
    On: z.array(z.string()),
    Targets: z
      .array(
        z.object({
          Name: z.string(),
          Shared: z.boolean(),
          PerSecond: z.number().nullable(),
          Concurrent: z.int().nullable(),
        }),
      )
      .optional()
      .meta({ description: 'the targets with limits' }),
  })
  .meta({ ref: 'ConsoleProcess' })
export type ProcessView = z.output<typeof ProcessView>

/** A process as the coordinator describes it, with its limits. */
export const ProcessDetail = ProcessView.extend({
  Retry: z.object({ MaxAttempts: z.int(), BaseMs: z.number(), CapMs: z.number() }),
  Concurrency: z.int().nullable(),
  ConcurrencyByKey: z.boolean(),
  ConcurrencyPerKey: z.int().optional(),
  StepTimeoutSeconds: z.number(),
  DeadlineSeconds: z.number().nullable(),
  Input: z.record(z.string(), z.unknown()).nullable().meta({ description: 'a JSON Schema' }),
  Versions: z
    .object({
      Items: z.array(z.object({ Version: z.string().nullable(), Unfinished: z.int() })),
    })
    .nullable(),
})

export const ProcessPageView = z
  .object({
    Process: ProcessDetail,
    Queues: z
      .array(z.object({ Step: z.string(), Due: z.int(), OldestSeconds: z.number() }))
      .meta({ description: 'the due runs of each step, counted once a minute' }),
    DeadLetters: z.int(),
    Schedules: z.array(ScheduleView),
  })
  .meta({ ref: 'ProcessPage' })
export type ProcessPageView = z.output<typeof ProcessPageView>

export const ProcessesView = z
  .object({
    Processes: z.array(ProcessView),
    NotLoaded: z.array(z.object({ Process: z.string(), Unfinished: z.int() })),
    Schedules: z.array(ScheduleView),
  })
  .meta({ ref: 'Processes' })
export type ProcessesView = z.output<typeof ProcessesView>

export const DeadLettersView = DeadLetterPage.meta({ ref: 'DeadLetters' })
export type DeadLettersView = z.output<typeof DeadLettersView>

export const processActions = ['pause', 'resume'] as const
export const scheduleActions = ['pause', 'resume', 'run'] as const
export const deadLetterActions = ['requeue', 'discard'] as const

/** The body of an action whose target has no version. */
export const ReasonBody = z.strictObject({ Reason }).meta({ ref: 'ReasonOfAction' })
