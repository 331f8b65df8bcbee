import { StepName } from '@integration-host/shared/contracts/step-message'
import { defaultRetryPolicy, type RetryPolicy } from './retry-policy.ts'
import type { Claim, ProcessOutline } from '../transaction/transaction-source.ts'
import type { StepOutcome } from './progress.ts'
import type { AnyStep, ProcessSettings } from './step.ts'
import type { StepAbort } from './step-abort.ts'

export interface ProcessSteps {
  readonly [name: string]: AnyStep
}

export interface ProcessOptions<Steps extends ProcessSteps> {
  /**
   * Whether the process pauses while the internet is unreachable. During the pause no step is started and no
   * attempt is charged.
   */
  readonly requireInternet?: boolean
  readonly retry?: Partial<RetryPolicy>
  /**
   * The time limit of a whole step in seconds. It must be below 30 minutes, because RabbitMQ closes the channel of
   * a delivery that is not acknowledged within 30 minutes.
   */
  readonly stepTimeoutSeconds?: number
  /**
   * `message`: each step is started by a message of its own, so that the broker's console shows the backlog of
   * each step. `inline`: a run has one message, and the worker that recorded a step continues with the next
   * step, which is about twice as fast.
   */
  readonly dispatch?: 'message' | 'inline'
  /** How many days its finished runs are kept, in place of the settings `RETENTION_…_DAYS`; 0: for ever. */
  readonly retention?: ProcessRetention
  /**
   * Returns the paths of the files that the steps of a run write into `settings.dataDir`. They are removed before the
   * run is purged. A file that a run never wrote may be named.
   */
  readonly files?: RunFiles
  /** The steps in the order in which they run. */
  readonly steps: Steps
}

export interface ProcessRetention {
  readonly completedDays?: number
  /** For failed and cancelled runs. */
  readonly failedDays?: number
}

export type RunFiles = (run: {
  readonly transactionId: string
  readonly replayId: number
  readonly settings: ProcessSettings
}) => readonly string[]

/** A named process as the coordinator runs it. */
export interface ProcessDefinition {
  readonly name: string
  readonly requireInternet: boolean
  readonly retry: RetryPolicy
  readonly stepTimeoutMs: number
  readonly dispatch: 'message' | 'inline'
  readonly retention: ProcessRetention
  readonly files: RunFiles
  readonly stepNames: readonly [string, ...string[]]
  readonly steps: ReadonlyMap<string, AnyStep>
  /**
   * Only in a process that is part of the coordinator: runs its step in place of the step function. It must not
   * reject. Clients cannot queue transactions of such a process.
   */
  readonly runBuiltIn?: (claim: Claim, abort: StepAbort) => Promise<StepOutcome>
}

const noFiles = (): readonly string[] => []
const DEFAULT_STEP_SECONDS = 300
const MAX_STEP_SECONDS = 1_500

/**
 * Defines a business process. A file in `processes/` exports the definition as its default, and the coordinator runs
 * the process.
 *
 * @throws {TypeError} for a definition that cannot run: invalid names (they become queue names), no steps, or a
 * time limit beyond the one that RabbitMQ has for a delivery.
 */
export function defineProcess<const Steps extends ProcessSteps>(
  name: string,
  options: ProcessOptions<Steps>,
): ProcessDefinition {
  const { requireInternet = false, dispatch = 'message', retention = {}, files = noFiles } = options
  const { stepTimeoutSeconds = DEFAULT_STEP_SECONDS } = options
  // Objects keep their keys in insertion order, except keys that look like numbers, which StepName does not allow.
  const [first, ...others] = Object.keys(options.steps)
  if (!StepName.safeParse(name).success) throw new TypeError(`${name} cannot name a process`)
  if (first === undefined) throw new TypeError(`process ${name} has no steps`)
  for (const step of [first, ...others]) {
    if (!StepName.safeParse(step).success) throw new TypeError(`${step} cannot name a step`)
    if (typeof options.steps[step] !== 'function')
      throw new TypeError(`step ${step} of ${name} is not a function`)
  }
  if (!(stepTimeoutSeconds > 0 && stepTimeoutSeconds <= MAX_STEP_SECONDS))
    throw new TypeError(`stepTimeoutSeconds of ${name} must be more than 0, at most 1500`)
  if (dispatch === 'inline' && stepTimeoutSeconds * (others.length + 1) > MAX_STEP_SECONDS)
    throw new TypeError(
      `${name}: with dispatch 'inline' all steps together may take 1500 seconds: set stepTimeoutSeconds`,
    )
  for (const [member, days] of Object.entries(retention))
    if (!(Number.isFinite(days) && days >= 0))
      throw new TypeError(`retention.${member} of ${name} must be a number of days, 0 or more`)
  return {
    name,
    requireInternet,
    dispatch,
    retention,
    files,
    retry: { ...defaultRetryPolicy, ...options.retry },
    stepTimeoutMs: stepTimeoutSeconds * 1_000,
    stepNames: [first, ...others],
    steps: new Map(Object.entries(options.steps)),
  }
}

/** Returns the name and the steps of a process, which is all that a transaction source needs. */
export const outlineOf = ({ name, stepNames: steps }: ProcessDefinition): ProcessOutline => ({
  name,
  steps,
})
