import type { z } from 'zod'
import { DefinitionVersion } from '@integration-host/shared/contracts/run-filter'
import { StepName } from '@integration-host/shared/contracts/transaction'
import { namesInstead } from '@integration-host/shared/similar-name'
import type { Schedule } from '../schedule/schedule.ts'
import type { Run } from '../run/run.ts'
import type { Claim, ProcessOutline } from '../run/transaction-source.ts'
import type { ChangeTrigger } from './change-trigger.ts'
import type { EntryTrigger } from './entry-trigger.ts'
import type { Concurrency } from '../run/concurrency.ts'
import type { ProcessOptions, ProcessRetention, RunFiles } from './process-options.ts'
import type { StepOutcome } from '../run/progress.ts'
import { createRedaction, type Redaction } from './redaction.ts'
import type { RetryPolicy } from '../run/retry-policy.ts'
import { hasNestedSecret, secretsOf, type SettingSchemas, withoutSecrets } from './settings.ts'
import type { SendDeps } from './send-call.ts'
import type { AnyStep, ProcessSettings } from './step.ts'
import { authSecretsOf, bindTargets, type BoundTarget } from './targets.ts'

/** A process with at least one step, as `defineProcess` returns it: the default export of a process file. */
export interface ProcessDefinition {
  /** The name under which transactions of the process are queued. */
  readonly name: string
  /** @internal */
  readonly requireInternet: boolean
  /** The default limits of the steps. A step may have its own limits instead. @internal */
  readonly limits: StepLimits
  /** @internal */
  readonly dispatch: 'message' | 'inline'
  /** The version that new runs get; `null` if the definition has none. @internal */
  readonly version: string | null
  /** The time limit of a whole run in milliseconds; `null` if there is none. @internal */
  readonly deadlineMs: number | null
  /** The limit on the number of runs in progress; `null` if there is no limit. @internal */
  readonly concurrency: Concurrency | null
  /** Which changes in the books of a company start a run. @internal */
  readonly on: readonly ChangeTrigger[]
  /** Which changes of objects that runs have written start a run. @internal */
  readonly entryOn: readonly EntryTrigger[]
  /** @internal */
  readonly schedules: readonly Schedule[]
  /** @internal */
  readonly retention: ProcessRetention
  /** @internal */
  readonly files: RunFiles
  /** The names of the steps, in the order in which they run. */
  readonly stepNames: readonly [string, ...string[]]
  /** @internal */
  readonly steps: ReadonlyMap<string, AnyStep>
  /** The names of the places at which a run waits for an event, a change or its children. @internal */
  readonly events: readonly string[]
  /** The names of the steps that have an `undo`, and of the places whose children are undone. @internal */
  readonly undoable: readonly string[]
  /** Whether a run that fails is undone. @internal */
  readonly undoesFailure: boolean
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
   * The function that runs the steps of a built-in process, in place of step functions; absent in other processes. A step
   * for which it returns `undefined` is run by its step function. It
   * makes its calls with `deps`, and its promise must not reject. Clients cannot queue transactions of a built-in
   * process.
   *
   * @internal
   */
  readonly runBuiltIn?: (claim: Claim, deps: SendDeps) => Promise<StepOutcome> | undefined
}

export interface StepLimits {
  readonly retry: RetryPolicy
  readonly timeoutMs: number
}

/** The values of the settings of a process in this installation. */
export interface BoundSettings {
  /** The settings that steps can read: all settings except secrets. */
  readonly values: Readonly<Record<string, unknown>>
  readonly hasValues: boolean
  readonly targets: ReadonlyMap<string, BoundTarget>
  /** Redacts secrets in the data that steps send and store; `null` if the process has no secrets. */
  readonly redaction: Redaction | null
}

/**
 * Returns a copy of the definition with the values of its settings, so that its steps can run. `values` has the results
 * of the schemas in `settings`.
 *
 * @throws {TypeError} if a setting has a secret nested in its value, or if a target cannot be called. The message
 *   contains no secret.
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

/**
 * Marks process definitions. The symbol is registered globally, because a definition may come from another copy of this
 * module.
 */
const DEFINITION = Symbol.for('integration-host.process-definition')
export const MARK = { [DEFINITION]: true }

/** Whether a value is a definition that `defineProcess` or `.step` has returned. */
export const isDefinition = (value: unknown): value is ProcessDefinition =>
  typeof value === 'object' && value !== null && DEFINITION in value

/** Whether clients can start runs of the process. Clients cannot start runs of a built-in process. */
export const isStartable = ({ runBuiltIn }: ProcessDefinition): boolean => runBuiltIn === undefined

/** Returns the names of the places at which the runs of the process wait for an event that a client sends. */
export const eventsOf = ({ steps }: Pick<ProcessDefinition, 'steps'>): string[] =>
  [...steps].flatMap(([name, { event }]) =>
    event !== undefined && event.change === undefined ? [name] : [],
  )

/** Whether the process has a place at which its runs wait for an event that a client sends. */
export const hasEvents = (definition: Pick<ProcessDefinition, 'steps'>): boolean =>
  eventsOf(definition).length > 0

/** Whether the process has a place at which its runs wait for a change in the books. */
export const hasChanges = ({ steps }: Pick<ProcessDefinition, 'steps'>): boolean =>
  [...steps.values()].some(({ event }) => event?.change !== undefined)

/** Whether the process has a place at which its runs have children. */
export const hasFamilies = ({ steps }: Pick<ProcessDefinition, 'steps'>): boolean =>
  [...steps.values()].some(({ forEach }) => forEach !== undefined)

/** Returns the limits of a step: its own limits, or else the limits of its process. */
export const limitsOf = (definition: ProcessDefinition, step: string): StepLimits =>
  definition.stepLimits.get(step) ?? definition.limits

/**
 * Returns the error text for a run whose due step does not exist in its process. The text says how to continue the run.
 */
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
  ...(definition.events.length > 0 && { events: definition.events }),
  version: definition.version,
  deadlineMs: definition.deadlineMs,
})

// The checks of the members of a definition. Each throws a TypeError whose message names the member.

/**
 * The maximum time limit of a step. It must be below 30 minutes, because RabbitMQ closes the channel of a delivery that
 * is not acknowledged by then.
 */
export const MAX_STEP_SECONDS = 1_500
const RETRY_MEMBERS = new Set<string>([
  'maxAttempts',
  'baseMs',
  'capMs',
] satisfies (keyof RetryPolicy)[])

/** Returns the version as it is stored. An integer and a text with the same digits are the same version. */
export function versionOf(process: string, version: ProcessOptions['version']): string | null {
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

/** Checks an option that is a time or absent. `what` names it, for example `timeoutMs of step a of P`. */
export function requireTime(value: unknown, max: number, what: string): void {
  if (value !== undefined && !(typeof value === 'number' && value > 0 && value <= max))
    throw new TypeError(`${what} must be more than 0, at most ${max}`)
}

/** Checks the name of a step or another place of a process. `what` is its kind, for example `a step`. */
export function requirePlaceName(process: string, name: string, what: string): void {
  if (!StepName.safeParse(name).success) throw new TypeError(cannotName(name, what, process))
}

const MOST_ROUNDS = 1_000_000

/** Checks `when`, `state` and `maxRounds` of a step. */
export function requireRounds(
  { when, state, maxRounds }: Pick<AnyStep, 'when' | 'state' | 'maxRounds'>,
  what: string,
): void {
  if (when !== undefined && typeof when !== 'function')
    throw new TypeError(`when of ${what} must be a function`)
  if (state !== undefined && !isSchema(state))
    throw new TypeError(`state of ${what} must be a schema of zod 4`)
  if (maxRounds === undefined) return
  if (state === undefined)
    throw new TypeError(`maxRounds of ${what} has no effect without the option state`)
  if (!(Number.isInteger(maxRounds) && maxRounds >= 1 && maxRounds <= MOST_ROUNDS))
    throw new TypeError(`maxRounds of ${what} must be a whole number from 1 to ${MOST_ROUNDS}`)
}

const UNDO_MEMBERS = new Set(['run', 'confirm'])

/** Checks `undo` of a step. */
export function requireUndo({ undo }: Pick<AnyStep, 'undo'>, what: string): void {
  if (undo === undefined || typeof undo === 'function') return
  const isObject = typeof undo === 'object' && undo !== null
  if (isObject) requireMembers(undo, UNDO_MEMBERS, `undo of ${what}`)
  const isValid =
    isObject &&
    typeof undo.run === 'function' &&
    (undo.confirm === undefined || typeof undo.confirm === 'function')
  if (!isValid)
    throw new TypeError(`undo of ${what} must be a function, or { run, confirm } with functions`)
}

/** @throws {TypeError} for an unknown member, which would otherwise be ignored without an error. */
export function requireMembers(options: object, known: ReadonlySet<string>, what: string): void {
  const unknown = Object.keys(options).find((member) => !known.has(member))
  if (unknown !== undefined)
    throw new TypeError(
      `${what} has no option ${unknown}${namesInstead(unknown, known, 'options')}`,
    )
}

const SETTING_NAME = /^[a-z][A-Za-z0-9]{0,63}$/
const INSTALLATION_SETTINGS = new Set<string>(['dataDir'] satisfies (keyof ProcessSettings)[])

export function requireSetting(process: string, setting: string, schema: unknown): void {
  const cannot = `${setting} cannot name a setting of ${process}`
  if (!SETTING_NAME.test(setting))
    throw new TypeError(`${cannot}: use a lower-case letter, then letters and digits`)
  if (INSTALLATION_SETTINGS.has(setting)) throw new TypeError(`${cannot}: the installation has it`)
  if (!isSchema(schema))
    throw new TypeError(`setting ${setting} of ${process} must be a schema of zod 4`)
}

export function ownLimits(
  { retry, timeoutMs }: Pick<AnyStep, 'retry' | 'timeoutMs'>,
  process: StepLimits,
  what: string,
): StepLimits {
  requireTime(timeoutMs, MAX_STEP_SECONDS * 1_000, `timeoutMs of ${what}`)
  return {
    retry: retryOf(retry, process.retry, what),
    timeoutMs: timeoutMs ?? process.timeoutMs,
  }
}

export function retryOf(
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

export const cannotName = (name: string, what: string, process?: string): string =>
  `${name} cannot name ${what}${process === undefined ? '' : ` of ${process}`}: use a letter, then at most 63 letters, digits, - and _`

export const isSchema = (value: unknown): value is z.ZodType =>
  typeof value === 'object' && value !== null && '_zod' in value && 'safeParse' in value
