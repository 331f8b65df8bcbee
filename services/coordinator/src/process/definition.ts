import { DefinitionVersion } from '@integration-host/shared/contracts/definition-version'
import { StepName } from '@integration-host/shared/contracts/step-message'
import type { z } from 'zod'
import type { Run } from '../transaction/run.ts'
import type { Claim, ProcessOutline } from '../transaction/transaction-source.ts'
import { type Concurrency, concurrencyOf } from './concurrency.ts'
import type { Json } from './json-normalization.ts'
import type { None, ProcessStart } from './process-chain.ts'
import type { StepOutcome } from './progress.ts'
import { createRedaction, type Redaction } from './redaction.ts'
import { defaultRetryPolicy, type RetryPolicy } from './retry-policy.ts'
import {
  hasNestedSecret,
  secretsOf,
  type SettingSchemas,
  type SettingValues,
  type StepSettings,
  withoutSecrets,
} from './settings.ts'
import {
  type AnyStep,
  defineStep,
  type NamedSteps,
  type ProcessSettings,
  type StepOptions,
} from './step.ts'
import type { StepAbort } from './step-abort.ts'
import { authSecretsOf, bindTargets, type BoundTarget, type Targets } from './targets.ts'

/** All options of a process, without its steps. */
export interface ProcessOptions<
  Input extends z.ZodType = z.ZodType<Json>,
  Schemas extends SettingSchemas = SettingSchemas,
  Named extends Targets = Targets,
> {
  /**
   * The schema of the initial data. A request to queue a transaction whose data does not match is rejected. If another
   * program inserts the transaction directly into the database, the data is checked only when the run starts. If it
   * does not match then, the run fails as `input_invalid`. Steps get the data that the schema returns.
   */
  readonly input?: Input
  /**
   * The settings of the process. `erpUrl` of the process `InvoiceExport` is the environment variable
   * `INVOICE_EXPORT_ERP_URL`.
   */
  readonly settings?: Schemas
  /** The services that steps call by name, or a function that returns them for the values of the settings. */
  readonly targets?: Named | ((settings: SettingValues<Schemas>) => Named)
  /**
   * Whether the process pauses while the internet is unreachable. During the pause no step is started and no attempt is
   * counted.
   */
  readonly requireInternet?: boolean
  /** How often a step is attempted. Default: ten times, after pauses of about 1 s up to 5 minutes. */
  readonly retry?: Partial<RetryPolicy>
  /**
   * The time limit of a whole step in seconds. It must be below 30 minutes, because RabbitMQ closes the channel if a
   * delivery is not acknowledged within 30 minutes.
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
   * `deadline_exceeded`. An attempt that is in flight at that time ends first, and its result is recorded. For a replay
   * and after a resume, the time limit begins again.
   */
  readonly deadlineSeconds?: number
  /**
   * The maximum number of runs in progress over all replicas: a whole number, 1 or more. A run is in progress from the
   * claim of a step until it waits, is to be retried later, or ends. Runs beyond the limit wait with
   * `WaitingFor: 'concurrency'`, and the run that has been due longest continues first. Default: no limit.
   */
  readonly concurrency?: number
  /**
   * Returns a key for the initial data, a text of 1 to 255 characters. `concurrency` then limits the runs of each key,
   * for example the runs of one customer. The key is computed once for each run, and is stored in plain text.
   */
  readonly concurrencyKey?: (input: z.output<Input>) => string
  /**
   * For how many days finished runs of the process are kept; 0 means for ever. Overrides the settings
   * `RETENTION_…_DAYS`.
   */
  readonly retention?: ProcessRetention
  /**
   * Returns the paths of the files that the steps of a run may have written into `settings.dataDir`. These files are
   * removed before the run is purged. A path at which the run has written no file is allowed.
   */
  readonly files?: RunFiles<ProcessSettings & StepSettings<Schemas>>
}

/** How long the runs of a process are kept after their end. */
export interface ProcessRetention {
  /** For completed runs. */
  readonly completedDays?: number
  /** For failed and cancelled runs. */
  readonly failedDays?: number
}

/** Returns the paths of the files that a run may have written. */
export type RunFiles<Settings = ProcessSettings> = (run: {
  readonly transactionId: string
  readonly replayId: number
  readonly settings: Settings
}) => readonly string[]

/** What `defineProcess` returns when the process has a step: the default export of a process file. */
export interface ProcessDefinition {
  /** The name with which transactions are queued. */
  readonly name: string
  /** @internal */
  readonly requireInternet: boolean
  /** The limits of the steps of the process that have no limits of their own. @internal */
  readonly limits: StepLimits
  /** @internal */
  readonly dispatch: 'message' | 'inline'
  /** The version that new runs get; `null` if the definition has none. @internal */
  readonly version: string | null
  /** The time limit of a whole run in milliseconds; `null` if there is none. @internal */
  readonly deadlineMs: number | null
  /** `null` if the number of runs in progress is not limited. @internal */
  readonly concurrency: Concurrency | null
  /** @internal */
  readonly retention: ProcessRetention
  /** @internal */
  readonly files: RunFiles
  /** The names of the steps, in the order in which they run. */
  readonly stepNames: readonly [string, ...string[]]
  /** @internal */
  readonly steps: ReadonlyMap<string, AnyStep>
  /** The limits of the steps that have limits of their own, by step name. @internal */
  readonly stepLimits: ReadonlyMap<string, StepLimits>
  /** The schema of the initial data; `null` if any data is accepted. @internal */
  readonly input: z.ZodType | null
  /** @internal */
  readonly settings: SettingSchemas
  /** Returns the targets for the values of the settings. Called by `bindSettings`. @internal */
  readonly targetsOf: (settings: never) => unknown
  /** The values of the settings; `null` until `bindSettings` has set them. @internal */
  readonly bound: BoundSettings | null
  /**
   * Set only for a process that is built into the coordinator. The function runs the step in place of a step function,
   * and its promise must not reject. Clients cannot queue transactions of such a process.
   *
   * @internal
   */
  readonly runBuiltIn?: (claim: Claim, abort: StepAbort) => Promise<StepOutcome>
}

export interface StepLimits {
  readonly retry: RetryPolicy
  readonly timeoutMs: number
}

/** The values that the settings of a process have in this installation. */
export interface BoundSettings {
  /** The settings that steps can read: all settings except secrets. */
  readonly values: Readonly<Record<string, unknown>>
  readonly hasValues: boolean
  readonly targets: ReadonlyMap<string, BoundTarget>
  /** Removes the secrets from the data that steps send and store; `null` if the process has no secrets. */
  readonly redaction: Redaction | null
}

const noFiles = (): readonly string[] => []
const DEFAULT_STEP_SECONDS = 300
const MAX_STEP_SECONDS = 1_500
const MAX_DEADLINE_SECONDS = 366 * 86_400
/** The maximum is needed because each step has its own queue. */
const MAX_STEPS = 100
const MEMBERS = new Set<string>([
  'input',
  'settings',
  'targets',
  'requireInternet',
  'retry',
  'stepTimeoutSeconds',
  'dispatch',
  'version',
  'deadlineSeconds',
  'concurrency',
  'concurrencyKey',
  'retention',
  'files',
  'steps',
] satisfies (keyof ProcessOptions | 'steps')[])
const STEP_MEMBERS = new Set<string>(['confirm', 'retry', 'timeoutMs'] satisfies (keyof StepOptions<
  never,
  unknown
>)[])
const RETRY_MEMBERS = new Set<string>([
  'maxAttempts',
  'baseMs',
  'capMs',
] satisfies (keyof RetryPolicy)[])

/**
 * Defines a business process. Its steps are added with `.step(name, function, options)`, in the order in which they
 * run. A process file has the definition as its default export, and the coordinator runs the process.
 *
 * The steps can also be passed as `steps`, an object of functions. The types of such steps are not checked against each
 * other.
 *
 * @throws {TypeError} if the definition cannot run, for example because of an invalid name (names are used in queue
 * names), an unknown member, or a time limit longer than RabbitMQ allows for a delivery.
 */
export function defineProcess(
  name: string,
  options: ProcessOptions & { readonly steps: NamedSteps },
): ProcessDefinition
export function defineProcess<
  Input extends z.ZodType = z.ZodType<Json>,
  const Schemas extends SettingSchemas = None,
  Named extends Targets = None,
>(
  name: string,
  options?: ProcessOptions<Input, Schemas, Named>,
): ProcessStart<Input, Schemas, Named>
export function defineProcess(
  name: string,
  options: ProcessOptions & { readonly steps?: NamedSteps } = {},
): unknown {
  if (!StepName.safeParse(name).success) throw new TypeError(cannotName(name, 'a process'))
  requireMembers(options, MEMBERS, `process ${name}`)
  const { steps, ...others } = options
  if (steps === undefined) return chained(name, others, [])
  // `{ __proto__: … }` is not a member but the prototype of the object.
  if (!isPlainObject(steps)) throw new TypeError(`steps of ${name} must be a plain object`)
  // Objects keep their keys in insertion order, except keys that look like numbers, which StepName does not allow.
  const named = Object.entries(steps)
  for (const [step, run] of named) requireStep(name, step, run)
  return definitionOf(name, others, named)
}

type NamedStep = readonly [name: string, run: AnyStep]

/**
 * Returns a definition with these steps, to which further steps can be added. `defineProcess` and `.step` return it.
 */
function chained(name: string, options: ProcessOptions, steps: readonly NamedStep[]): unknown {
  return {
    ...(steps.length === 0 ? { name } : definitionOf(name, options, steps)),
    step(added: string, run: AnyStep, stepOptions: StepOptions<never, unknown> = {}) {
      requireStep(name, added, run)
      if (steps.some(([known]) => known === added))
        throw new TypeError(`process ${name} has two steps ${added}`)
      requireMembers(stepOptions, STEP_MEMBERS, `step ${added} of ${name}`)
      return chained(name, options, [...steps, [added, defineStep(run, stepOptions as object)]])
    },
  }
}

function definitionOf(
  name: string,
  options: ProcessOptions,
  steps: readonly NamedStep[],
): ProcessDefinition {
  const { requireInternet = false, dispatch = 'message', retention = {}, files = noFiles } = options
  const { stepTimeoutSeconds = DEFAULT_STEP_SECONDS, input = null, settings = {} } = options
  const { deadlineSeconds } = options
  const [first, ...others] = steps.map(([step]) => step)
  if (first === undefined) throw new TypeError(`process ${name} has no steps`)
  if (steps.length > MAX_STEPS)
    throw new TypeError(`process ${name} has ${steps.length} steps; ${MAX_STEPS} are possible`)
  if (input !== null && !isSchema(input))
    throw new TypeError(`input of ${name} must be a schema of zod 4`)
  for (const [setting, schema] of Object.entries(settings)) requireSetting(name, setting, schema)
  if (!(stepTimeoutSeconds > 0 && stepTimeoutSeconds <= MAX_STEP_SECONDS))
    throw new TypeError(`stepTimeoutSeconds of ${name} must be more than 0, at most 1500`)
  if (
    deadlineSeconds !== undefined &&
    !(
      typeof deadlineSeconds === 'number' &&
      deadlineSeconds > 0 &&
      deadlineSeconds <= MAX_DEADLINE_SECONDS
    )
  )
    throw new TypeError(
      `deadlineSeconds of ${name} must be more than 0, at most ${MAX_DEADLINE_SECONDS}`,
    )
  for (const [member, days] of Object.entries(retention))
    if (!(Number.isFinite(days) && days >= 0))
      throw new TypeError(`retention.${member} of ${name} must be a number of days, 0 or more`)
  const limits = {
    retry: retryOf(options.retry, defaultRetryPolicy, `process ${name}`),
    timeoutMs: stepTimeoutSeconds * 1_000,
  }
  const stepLimits = new Map(
    steps.flatMap(([step, run]) =>
      run.retry === undefined && run.timeoutMs === undefined
        ? []
        : [[step, ownLimits(run, limits, `step ${step} of ${name}`)]],
    ),
  )
  const totalMs = steps.reduce((sum, [step]) => sum + (stepLimits.get(step) ?? limits).timeoutMs, 0)
  if (dispatch === 'inline' && totalMs > MAX_STEP_SECONDS * 1_000)
    throw new TypeError(
      `${name}: with dispatch 'inline' all steps together may take 1500 seconds: set stepTimeoutSeconds`,
    )
  const { targets = {} } = options
  const definition: ProcessDefinition = {
    ...MARK,
    name,
    requireInternet,
    dispatch,
    version: versionOf(name, options.version),
    deadlineMs: deadlineSeconds === undefined ? null : deadlineSeconds * 1_000,
    concurrency: concurrencyOf(name, options),
    retention,
    // The functions that name a run's files read the settings of the process, which `bindSettings` sets.
    files: files as RunFiles,
    limits,
    stepNames: [first, ...others],
    steps: new Map(steps),
    stepLimits,
    input,
    settings,
    targetsOf: typeof targets === 'function' ? targets : () => targets,
    bound: null,
  }
  return Object.keys(settings).length === 0 ? bindSettings(definition, {}) : definition
}

/**
 * Returns a copy of the definition with the values of its settings, so that its steps can run. `values` has the results
 * of the schemas in `settings`.
 *
 * @throws {TypeError} in either of two cases: a setting has a secret nested in its value, or the process describes a
 * target that cannot be called. The message contains no secret.
 */
export function bindSettings<Definition extends ProcessDefinition>(
  definition: Definition,
  values: Readonly<Record<string, unknown>>,
): Definition {
  const { name } = definition
  for (const [setting, value] of Object.entries(values))
    if (hasNestedSecret(value))
      throw new TypeError(
        `process ${name}: setting ${setting} must not contain a secret: declare the secret as a setting of its own`,
      )
  const secrets = secretsOf(values)
  let targets: BoundSettings['targets']
  try {
    targets = bindTargets(definition.targetsOf(values as never), secrets)
  } catch (error) {
    const message = error instanceof Error ? error.message : 'not an error'
    const why = createRedaction(secrets)?.text(message) ?? message
    // oxlint-disable-next-line preserve-caught-error -- the error comes from code of the process, and it may contain a secret
    throw new TypeError(`process ${name}: ${why}`)
  }
  const readable = withoutSecrets(values)
  const hasValues = Object.keys(readable).length > 0
  const redaction = createRedaction([...secrets, ...authSecretsOf(targets)])
  return { ...definition, bound: { values: readable, hasValues, targets, redaction } }
}

/** Returns the version as it is stored. An integer and the same digits as a text are the same version. */
function versionOf(process: string, version: ProcessOptions['version']): string | null {
  if (version === undefined) return null
  const isValid =
    typeof version === 'number'
      ? Number.isSafeInteger(version) && version > 0
      : DefinitionVersion.safeParse(version).success
  if (!isValid)
    throw new TypeError(
      `version of ${process} must be a positive integer, or a text of at most 32 letters, digits, ., _, + and - that begins with a letter or digit`,
    )
  return String(version)
}

function requireStep(process: string, step: string, run: unknown): void {
  if (!StepName.safeParse(step).success) throw new TypeError(cannotName(step, 'a step', process))
  if (typeof run !== 'function') throw new TypeError(`step ${step} of ${process} is not a function`)
}

/** @throws {TypeError} for an unknown member, because it would have no effect. */
function requireMembers(options: object, known: ReadonlySet<string>, what: string): void {
  const unknown = Object.keys(options).find((member) => !known.has(member))
  if (unknown !== undefined) throw new TypeError(`${what} has no option ${unknown}`)
}

const SETTING_NAME = /^[a-z][A-Za-z0-9]{0,63}$/
const INSTALLATION_SETTINGS = new Set<string>([
  'demoApiUrl',
  'dataDir',
] satisfies (keyof ProcessSettings)[])

function requireSetting(process: string, setting: string, schema: unknown): void {
  if (!SETTING_NAME.test(setting))
    throw new TypeError(
      `${setting} cannot name a setting of ${process}: use a lower-case letter, then letters and digits`,
    )
  if (INSTALLATION_SETTINGS.has(setting))
    throw new TypeError(`${setting} cannot name a setting of ${process}: the installation has it`)
  if (!isSchema(schema))
    throw new TypeError(`setting ${setting} of ${process} must be a schema of zod 4`)
}

function ownLimits(
  { retry, timeoutMs }: Pick<AnyStep, 'retry' | 'timeoutMs'>,
  process: StepLimits,
  what: string,
): StepLimits {
  if (timeoutMs !== undefined && !(timeoutMs > 0 && timeoutMs <= MAX_STEP_SECONDS * 1_000))
    throw new TypeError(`timeoutMs of ${what} must be more than 0, at most 1500000`)
  return {
    retry: retryOf(retry, process.retry, what),
    timeoutMs: timeoutMs ?? process.timeoutMs,
  }
}

function retryOf(
  given: Partial<RetryPolicy> | undefined,
  defaults: RetryPolicy,
  what: string,
): RetryPolicy {
  if (given === undefined) return defaults
  requireMembers(given, RETRY_MEMBERS, `retry of ${what}`)
  const policy = { ...defaults, ...given }
  if (!(Number.isInteger(policy.maxAttempts) && policy.maxAttempts >= 1))
    throw new TypeError(`retry.maxAttempts of ${what} must be a whole number, 1 or more`)
  for (const member of ['baseMs', 'capMs'] as const)
    if (!(Number.isFinite(policy[member]) && policy[member] >= 0))
      throw new TypeError(`retry.${member} of ${what} must be a number of milliseconds, 0 or more`)
  return policy
}

const cannotName = (name: string, what: string, process?: string): string =>
  `${name} cannot name ${what}${process === undefined ? '' : ` of ${process}`}: use a letter, then at most 63 letters, digits, - and _`

const isPlainObject = (value: object): boolean =>
  [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null)

const isSchema = (value: unknown): value is z.ZodType =>
  typeof value === 'object' && value !== null && '_zod' in value && 'safeParse' in value

/**
 * Marks definitions. The symbol is registered globally, because another copy of this module may have made a definition.
 */
const DEFINITION = Symbol.for('integration-host.process-definition')
const MARK = { [DEFINITION]: true }

/** Whether a value is a definition that `defineProcess` or `.step` has returned. */
export const isDefinition = (value: unknown): value is ProcessDefinition =>
  typeof value === 'object' && value !== null && DEFINITION in value

/** Returns the limits of a step: its own limits, or else the limits of its process. */
export const limitsOf = (definition: ProcessDefinition, step: string): StepLimits =>
  definition.stepLimits.get(step) ?? definition.limits

/** Returns the error of a run at a step that its process does not have. The error names the remedy. */
export function stepUnknownError(
  { StepName: step, DefinitionVersion: began }: Pick<Run, 'StepName' | 'DefinitionVersion'>,
  { version }: Pick<ProcessDefinition, 'version'>,
): string {
  const versions = [
    ...(began === null ? [] : [`the run began with version ${began}`]),
    ...(version === null ? [] : [`the process now has version ${version}`]),
  ].join(', ')
  return (
    `the process has no step ${step}${versions && ` (${versions})`}: add a step of this name and resume the run, ` +
    'or replay it, which starts a run with the steps that the process has now'
  )
}

/** Returns the part of a definition that a transaction source needs. */
export const outlineOf = (definition: ProcessDefinition): ProcessOutline => ({
  name: definition.name,
  steps: definition.stepNames,
  version: definition.version,
  deadlineMs: definition.deadlineMs,
})
