/** The first page: what needs a person, and the state of the installation in a few counts. */
import { headerStatuses } from '@integration-host/shared/contracts/transaction'
import { z } from 'zod'

const severities = ['critical', 'warning', 'info'] as const

/** The names of the conditions. docs/runbook.md has a section for each of them. */
export const conditionNames = [
  'ServiceDown',
  'DependencyDown',
  'ProviderClientRefused',
  'InternetAway',
  'CredentialsFaulted',
  'GrantsExpiring',
  'RunsFailed',
  'RunsInDoubt',
  'RunsWaiting',
  'ProcessPaused',
  'RunsLate',
  'DeadMessages',
  'BooksOutOfBalance',
] as const

export const ConditionView = z
  .object({
    Key: z.string().meta({ description: 'the same while the condition lasts' }),
    Name: z.enum(conditionNames).meta({ description: 'the section of docs/runbook.md' }),
    Severity: z.enum(severities),
    Title: z.string(),
    Detail: z.string(),
    Remedy: z.string().meta({ description: 'what helps' }),
    Affected: z.int().nonnegative(),
    Since: z.iso.datetime(),
    Page: z.string().nullable().meta({ description: 'the page of the console that shows more' }),
  })
  .meta({ ref: 'Condition' })
export type ConditionView = z.output<typeof ConditionView>

const ChangeView = z.object({
  Key: z.string(),
  At: z.iso.datetime(),
  Who: z.string(),
  What: z.string(),
  Reason: z.string().nullable(),
})
export type ChangeView = z.output<typeof ChangeView>

export const NowView = z
  .object({
    At: z.iso.datetime().meta({ description: 'the time of the latest check' }),
    Conditions: z.array(ConditionView),
    LastEnded: z.object({ Title: z.string(), At: z.iso.datetime() }).nullable(),
    Runs: z.partialRecord(z.enum(headerStatuses), z.int()).nullable(),
    Due: z.object({ Count: z.int(), OldestSeconds: z.number() }).nullable(),
    Companies: z
      .object({ Total: z.int(), Active: z.int(), Failing: z.int(), MustReconnect: z.int() })
      .nullable(),
    Minutes: z
      .array(z.object({ Done: z.int(), Failed: z.int() }))
      .meta({ description: 'ended runs of each of the last 60 minutes, the oldest first' }),
    WatchedSince: z.iso.datetime().meta({ description: 'Minutes have counted from then on' }),
    Services: z.array(z.object({ Name: z.string(), Ready: z.int(), Replicas: z.int() })),
    Changes: z.array(ChangeView),
  })
  .meta({ ref: 'Now' })
export type NowView = z.output<typeof NowView>
