/** The page Now: what needs a person, and the state of the installation in a few counts. */
import { z } from 'zod'
import { ActivityEntry } from './activity.ts'

const severities = ['critical', 'warning', 'info'] as const

/** An action against a condition that a person can start on the page Now itself. */
const ConditionAction = z.discriminatedUnion('Kind', [
  z.object({
    Kind: z.literal('resume_runs'),
    Process: z.string(),
    Step: z.string().nullable(),
    Class: z.string().nullable(),
    DataRejected: z.boolean().meta({
      description:
        'whether the data of the runs was rejected, so that copies with changes help rather than a resume',
    }),
  }),
  z.object({
    Kind: z.literal('connect_company'),
    Realm: z.string(),
    Label: z.string().optional(),
    CompanyName: z.string().optional(),
  }),
  z.object({ Kind: z.literal('send_links') }),
  z.object({ Kind: z.literal('resume_process'), Process: z.string() }),
  z.object({
    Kind: z.literal('resume_company'),
    Realm: z.string(),
    CompanyName: z.string().optional(),
  }),
])
export type ConditionAction = z.output<typeof ConditionAction>

const AsOf = z.iso.datetime().nullable().meta({
  description:
    'the time of the values if the service has not responded since; null if they are current',
})

export const ConditionView = z
  .object({
    Key: z.string().meta({ description: 'the same while the condition lasts' }),
    Name: z.string().meta({ description: 'the name of the alert' }),
    InRunbook: z.boolean().meta({ description: 'whether the runbook has a section on it' }),
    Severity: z.enum(severities),
    Title: z.string(),
    Detail: z.string(),
    Remedy: z.string().meta({ description: 'what helps' }),
    Affected: z.int().nonnegative(),
    Since: z.iso.datetime(),
    Begin: z.string().nullable().meta({
      description: 'what happened then, such as "first failure"; null: the condition began',
    }),
    AsOf,
    Page: z.string().nullable().meta({ description: 'the page of the console that shows more' }),
    Action: ConditionAction.nullable(),
  })
  .meta({ ref: 'Condition' })
export type ConditionView = z.output<typeof ConditionView>

const ChangeView = ActivityEntry.extend({
  Times: z.int().positive().meta({
    description: 'how often the same was done in succession; the entry is the newest one',
  }),
})
export type ChangeView = z.output<typeof ChangeView>

/** How many runs are in each group. All pages show the numbers from the same event, so that the pages agree. */
const RunCounts = z
  .object({
    InFlight: z.int().meta({ description: 'queued, running or retrying' }),
    Retrying: z.int().meta({ description: 'part of InFlight' }),
    Asking: z.int().meta({
      description: 'part of Retrying: nothing has failed, their step asks again later',
    }),
    Waiting: z.int().meta({ description: 'for a company or for a slot' }),
    Failed: z.int(),
    Cancelled: z.int(),
    InDoubt: z.int().meta({ description: 'of all the others' }),
  })
  .meta({ ref: 'RunCounts' })
export type RunCounts = z.output<typeof RunCounts>

export const NowView = z
  .object({
    At: z.iso.datetime().meta({ description: 'the time of the latest check' }),
    Conditions: z.array(ConditionView),
    PrometheusFailedSince: z.iso.datetime().nullable().meta({
      description:
        'since when the alerts of Prometheus cannot be read; null if they can, or without it',
    }),
    LastEnded: z.object({ Title: z.string(), At: z.iso.datetime() }).nullable(),
    Runs: RunCounts.nullable().meta({ description: 'null before the first count' }),
    RunsOf: z
      .array(
        RunCounts.extend({
          Process: z.string(),
          LastHour: z
            .object({ Done: z.int(), Failed: z.int() })
            .meta({ description: 'runs that ended, since WatchedSince' }),
        }),
      )
      .meta({ description: 'the same by process' }),
    RunsAsOf: AsOf,
    HasRuns: z.boolean().meta({ description: 'whether there are or were any runs' }),
    Due: z
      .object({
        Count: z.int(),
        OldestSeconds: z.number(),
        CountedAt: z.iso.datetime().nullable().meta({
          description: 'the time of the oldest count of a process; null if it is not known',
        }),
      })
      .nullable()
      .meta({ description: 'the runs that a worker could claim at the latest count' }),
    Companies: z
      .object({ Total: z.int(), Active: z.int(), Failing: z.int(), MustReconnect: z.int() })
      .nullable(),
    CompaniesAsOf: AsOf,
    Minutes: z
      .array(z.object({ Done: z.int(), Failed: z.int() }))
      .meta({ description: 'ended runs of each of the last 60 minutes, the oldest first' }),
    WatchedSince: z.iso.datetime().meta({ description: 'Minutes have counted from then on' }),
    Services: z.array(z.object({ Name: z.string(), Ready: z.int(), Replicas: z.int() })),
    Changes: z.array(ChangeView),
    ChangesAsOf: z.array(z.object({ Service: z.string(), At: z.iso.datetime() })).meta({
      description:
        'the services that do not respond and whose entries among Changes are outdated, with the time of the last read',
    }),
  })
  .meta({ ref: 'Now' })
export type NowView = z.output<typeof NowView>
