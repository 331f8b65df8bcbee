import { StepName } from '@integration-host/shared/contracts/transaction'
import type { z } from 'zod'
import { schedulesOf } from '../schedule/schedule.ts'
import { entryTriggersOf } from './entry-trigger.ts'
import { triggersOf } from './change-trigger.ts'
import { concurrencyOf } from '../run/concurrency.ts'
import { changeStep } from './change-place.ts'
import { forEachStep } from './children-place.ts'
import {
  bindSettings,
  cannotName,
  isSchema,
  MARK,
  MAX_STEP_SECONDS,
  ownLimits,
  type ProcessDefinition,
  requireMembers,
  requirePlaceName,
  requireRounds,
  requireSetting,
  requireTime,
  requireUndo,
  retryOf,
  versionOf,
} from './definition.ts'
import { type EventOptions, eventStep } from './event.ts'
import type { Json } from '../run/json-normalization.ts'
import type { None, ProcessStart } from './process-chain.ts'
import type { ProcessOptions, RunFiles } from './process-options.ts'
import { defaultRetryPolicy } from '../run/retry-policy.ts'
import type { SettingSchemas } from './settings.ts'
import { type AnyStep, stepOptionNames, withOptions } from './step.ts'
import type { Targets } from './targets.ts'

const noFiles = (): readonly string[] => []
const DEFAULT_STEP_SECONDS = 300
const MAX_DEADLINE_SECONDS = 366 * 86_400
/** The maximum number of steps. There is a maximum because each step needs its own queue. */
const MAX_STEPS = 100
const MEMBERS = new Set<string>([
  'input',
  'settings',
  'on',
  'targets',
  'requireInternet',
  'retry',
  'stepTimeoutSeconds',
  'dispatch',
  'version',
  'deadlineSeconds',
  'onFailure',
  'concurrency',
  'concurrencyKey',
  'retention',
  'schedules',
  'files',
] satisfies (keyof ProcessOptions)[])
/** The first release had the steps as an option. */
const WITH_STEP = 'add each step with .step(name, function)'
const STEP_MEMBERS = new Set<string>(stepOptionNames)

/**
 * Defines a business process. Its steps are added with `.step(name, function, options)`, in the order in which they
 * run. The default export of a process file is such a definition.
 *
 * @throws {TypeError} if the definition cannot run, for example because of an invalid name (names are used in queue
 *   names), an unknown member, or a time limit longer than RabbitMQ allows for a delivery.
 */
export function defineProcess<
  Input extends z.ZodType = z.ZodType<Json>,
  const Schemas extends SettingSchemas = None,
  Named extends Targets = None,
>(
  name: string,
  options?: ProcessOptions<Input, Schemas, Named>,
): ProcessStart<Input, Schemas, Named>
export function defineProcess(name: string, options: ProcessOptions = {}): unknown {
  if (!StepName.safeParse(name).success) throw new TypeError(cannotName(name, 'a process'))
  if ('steps' in options) throw new TypeError(`process ${name} has no option steps: ${WITH_STEP}`)
  requireMembers(options, MEMBERS, `process ${name}`)
  return chained(name, options, [])
}

type NamedStep = readonly [name: string, run: AnyStep]

/**
 * Returns a definition with these steps, to which further steps can be added. `defineProcess` and `.step` return it.
 */
function chained(name: string, options: ProcessOptions, steps: readonly NamedStep[]): unknown {
  const withPlace = (added: string, place: () => AnyStep): unknown => {
    if (steps.some(([known]) => known === added))
      throw new TypeError(`process ${name} has two steps ${added}`)
    return chained(name, options, [...steps, [added, place()]])
  }
  return {
    ...(steps.length === 0 ? { name } : definitionOf(name, options, steps)),
    step(added: string, run: AnyStep, stepOptions: Partial<AnyStep> = {}) {
      const what = `step ${added} of ${name}`
      requirePlaceName(name, added, 'a step')
      if (typeof run !== 'function') throw new TypeError(`${what} is not a function`)
      return withPlace(added, () => {
        requireMembers(stepOptions, STEP_MEMBERS, what)
        return withOptions(run, stepOptions)
      })
    },
    event: (added: string, eventOptions: EventOptions = {}) =>
      withPlace(added, () => eventStep(name, added, eventOptions)),
    change: (added: string, ...args: Tail<typeof changeStep>) =>
      withPlace(added, () => changeStep(name, added, ...args)),
    forEach: (added: string, ...args: Tail<typeof forEachStep>) =>
      withPlace(added, () => forEachStep(name, added, ...args)),
  }
}

/** The arguments of a place after the names of its process and its own. */
type Tail<Place extends (process: string, name: string, ...args: never) => AnyStep> =
  Parameters<Place> extends [string, string, ...infer Rest] ? Rest : never

function definitionOf(
  name: string,
  options: ProcessOptions,
  steps: readonly NamedStep[],
): ProcessDefinition {
  const { requireInternet = false, dispatch = 'message', retention = {}, files = noFiles } = options
  const { stepTimeoutSeconds = DEFAULT_STEP_SECONDS, input = null, settings = {} } = options
  const { deadlineSeconds, onFailure = 'fail' } = options
  const [first, ...others] = steps.map(([step]) => step)
  if (first === undefined) throw new TypeError(`process ${name} has no steps`)
  if (steps.length > MAX_STEPS)
    throw new TypeError(`process ${name} has ${steps.length} steps; ${MAX_STEPS} are possible`)
  if (input !== null && !isSchema(input))
    throw new TypeError(`input of ${name} must be a schema of zod 4`)
  for (const [setting, schema] of Object.entries(settings)) requireSetting(name, setting, schema)
  requireTime(stepTimeoutSeconds, MAX_STEP_SECONDS, `stepTimeoutSeconds of ${name}`)
  requireTime(deadlineSeconds, MAX_DEADLINE_SECONDS, `deadlineSeconds of ${name}`)
  if (onFailure !== 'fail' && onFailure !== 'undo')
    throw new TypeError(`onFailure of ${name} must be 'fail' or 'undo'`)
  for (const [member, days] of Object.entries(retention))
    if (!(Number.isFinite(days) && days >= 0))
      throw new TypeError(`retention.${member} of ${name} must be a number of days, 0 or more`)
  for (const [step, run] of steps) {
    requireRounds(run, `step ${step} of ${name}`)
    requireUndo(run, `step ${step} of ${name}`)
  }
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
  const concurrency = concurrencyOf(name, options)
  const definition: ProcessDefinition = {
    ...MARK,
    name,
    requireInternet,
    dispatch,
    version: versionOf(name, options.version),
    deadlineMs: deadlineSeconds === undefined ? null : deadlineSeconds * 1_000,
    concurrency,
    schedules: schedulesOf(name, options.schedules, { input, concurrency }),
    on: triggersOf(name, options.on),
    entryOn: entryTriggersOf(name, options.on),
    retention,
    // The cast hides that the function reads the settings of the process, which `bindSettings` sets later.
    files: files as RunFiles,
    limits,
    stepNames: [first, ...others],
    steps: new Map(steps),
    events: steps.flatMap(([step, { event, forEach }]) => ((event ?? forEach) ? [step] : [])),
    undoable: steps.flatMap(([step, { undo, forEach }]) => ((undo ?? forEach) ? [step] : [])),
    undoesFailure: onFailure === 'undo',
    stepLimits,
    input,
    settings,
    targetsOf: typeof targets === 'function' ? targets : () => targets,
    bound: null,
  }
  return Object.keys(settings).length === 0 ? bindSettings(definition, {}) : definition
}
