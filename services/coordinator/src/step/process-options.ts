/** The options with which a process is defined. */
import type { z } from 'zod'
import type { ScheduleOptions } from '../schedule/schedule.ts'
import type { ChangeTrigger } from './change-trigger.ts'
import type { ConcurrencyLimits } from '../run/concurrency.ts'
import type { EntryTrigger } from './entry-trigger.ts'
import type { Json } from '../run/json-normalization.ts'
import type { RetryPolicy } from '../run/retry-policy.ts'
import type { SettingSchemas, SettingValues, StepSettings } from './settings.ts'
import type { ProcessSettings } from './step.ts'
import type { Targets } from './targets.ts'

/** All options of a process, without its steps. */
export interface ProcessOptions<
  Input extends z.ZodType = z.ZodType<Json>,
  Schemas extends SettingSchemas = SettingSchemas,
  Named extends Targets = Targets,
> {
  /**
   * The schema of the initial data. A request to queue a transaction is rejected if the data does not match. If another
   * program inserts the transaction directly into the database, the data is checked when the run starts, and the run
   * fails as `input_invalid` if it does not match. Steps get the data that the schema returns.
   */
  readonly input?: Input
  /**
   * The settings of the process. Each is read from an environment variable: `erpUrl` of the process `InvoiceExport`
   * from `INVOICE_EXPORT_ERP_URL`.
   */
  readonly settings?: Schemas
  /**
   * Lists which changes in the books of a company start a run. The initial data of the run is a `ProviderChange`, its
   * `Realm` is the company, and its `TransactionID` is the id of the change, which is the same for every delivery. An entry with
   * the member `entry` is about objects that runs have written (`EntryTrigger`, `EntryChange`).
   */
  readonly on?: readonly (ChangeTrigger | EntryTrigger)[]
  /** The services that steps call by name, or a function that returns them and gets the values of the settings. */
  readonly targets?: Named | ((settings: SettingValues<Schemas>) => Named)
  /**
   * Whether the process pauses while the internet is unreachable. During the pause no step is started and no attempt is
   * counted.
   */
  readonly requireInternet?: boolean
  /**
   * How many times a step is attempted, and the pauses between the attempts. Default: ten attempts, with pauses of
   * about 1 s up to 5 minutes.
   */
  readonly retry?: Partial<RetryPolicy>
  /**
   * The time limit of a whole step in seconds. It must be below 30 minutes, because RabbitMQ closes the channel of a
   * delivery that is not acknowledged by then.
   */
  readonly stepTimeoutSeconds?: number
  /**
   * `message`: each step is started by its own message, so that the RabbitMQ management UI shows the backlog of each
   * step. `inline`: a run has one message, and the worker that has recorded the outcome of a step continues with the
   * next step. `inline` is about twice as fast.
   */
  readonly dispatch?: 'message' | 'inline'
  /**
   * The version of this definition: a positive integer, or a text of at most 32 letters, digits, `.`, `_`, `+` and `-`
   * such as `2026-11`. A run keeps the version with which it began, and a step reads it as `step.version`.
   */
  readonly version?: string | number
  /**
   * The time limit of a whole run in seconds, at most a year. A run that has not ended by then fails as
   * `deadline_exceeded`. If an attempt is in flight at that time, the run fails only after the attempt has ended and
   * its result is recorded. The time limit begins again for a replay and after a resume.
   */
  readonly deadlineSeconds?: number
  /**
   * What becomes of a run that fails because of a step, an event that did not arrive in time, or its deadline. `fail` (the
   * default): it ends as `Failed`. `undo`: its finished steps are undone first, the last one first, and it ends as
   * `Undone`.
   */
  readonly onFailure?: 'fail' | 'undo'
  /**
   * The maximum number of runs in progress over all replicas: a whole number, 1 or more. `{ total, perKey }` limits both
   * all runs of the process and the runs of each key, and a free slot goes to the key that has the fewest. A run is in progress from the
   * claim of a step until it waits, is to be retried later, or ends. Runs beyond the limit wait with
   * `WaitingFor: 'concurrency'`, runs with high priority and those that have been due longest continue first. Default:
   * no limit.
   */
  readonly concurrency?: number | ConcurrencyLimits
  /**
   * Returns the concurrency key for the initial data, a text of 1 to 255 characters. A number as `concurrency` then
   * limits the runs of each key, for example the runs of one customer. Without the function, the key of `perKey` is the
   * company of the run (`Realm`); the runs without a company have one key together. The key is computed once for each run, and is stored in plain
   * text.
   */
  readonly concurrencyKey?: (input: z.output<Input>) => string
  /**
   * For how many days finished runs of the process are kept; 0 means for ever. The default comes from the settings
   * `RETENTION_…_DAYS`.
   */
  readonly retention?: ProcessRetention
  /**
   * The schedules of the process. At the times of a schedule, runs begin without a request, for example every night.
   */
  readonly schedules?: readonly ScheduleOptions<z.input<Input>>[]
  /**
   * Returns the paths of the files that the steps of a run may have written into `settings.dataDir`. These files are
   * removed before the run is purged. The list may contain a path at which the run has written no file.
   */
  readonly files?: RunFiles<ProcessSettings & StepSettings<Schemas>>
}

/** How long the runs of a process are kept after their end. */
export interface ProcessRetention {
  /** The retention of completed runs, in days. */
  readonly completedDays?: number
  /** The retention of failed and cancelled runs, in days. */
  readonly failedDays?: number
}

/** Returns the paths of the files that a run may have written. */
export type RunFiles<Settings = ProcessSettings> = (run: {
  readonly transactionId: string
  readonly replayId: number
  readonly settings: Settings
}) => readonly string[]
