/** The checks of the members of a definition. Each throws a TypeError whose message names the member. */
import { DefinitionVersion } from '@integration-host/shared/contracts/run-filter'
import { StepName } from '@integration-host/shared/contracts/transaction'
import { namesInstead } from '@integration-host/shared/similar-name'
import type { z } from 'zod'
import type { StepLimits } from './definition.ts'
import type { ProcessOptions } from './process-options.ts'
import type { RetryPolicy } from '../run/retry-policy.ts'
import type { AnyStep, ProcessSettings } from './step.ts'

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

export function requireStep(process: string, step: string, run: unknown): void {
  if (!StepName.safeParse(step).success) throw new TypeError(cannotName(step, 'a step', process))
  if (typeof run !== 'function') throw new TypeError(`step ${step} of ${process} is not a function`)
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
  if (!SETTING_NAME.test(setting))
    throw new TypeError(
      `${setting} cannot name a setting of ${process}: use a lower-case letter, then letters and digits`,
    )
  if (INSTALLATION_SETTINGS.has(setting))
    throw new TypeError(`${setting} cannot name a setting of ${process}: the installation has it`)
  if (!isSchema(schema))
    throw new TypeError(`setting ${setting} of ${process} must be a schema of zod 4`)
}

export function ownLimits(
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
