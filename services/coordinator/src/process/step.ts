/** The types of steps and of the argument that a step function gets: the interface for authors of process files. */
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Files } from './files.ts'
import type { StepRequest } from './step-request.ts'
import type { Json } from './json-normalization.ts'

/** A step function with any types of data from earlier steps, and with its `confirm` function if it has one. */
export interface AnyStep {
  (step: never): unknown
  readonly confirm?: (step: never) => unknown
}

/** The data that a step passes to the next step: the result of `parse`, or the argument of `complete`. */
export type DataOf<Of> = Of extends (step: never) => infer Result
  ? Awaited<Result> extends { readonly data: infer Data }
    ? Data
    : Json
  : Json

/** A finished step of this run. */
export interface StepItem<Data = Json> {
  readonly name: string
  readonly TransactionID: string
  readonly ReplayID: number
  readonly ResponseBody: string | null
  readonly responseStatus: number | null
  readonly data: Data
}

export interface ExecuteOptions<Data extends Json> {
  /** Returns the step's data from the parsed JSON body; throws if the response is not as expected. */
  readonly parse?: (body: unknown) => Data
  /** `ACC-<realm>`: the call goes through the gateway, which adds that realm's current access token. */
  readonly credential?: string
  /** The time limit of the whole call, including connecting. Default: 60 seconds. */
  readonly timeoutMs?: number
}

/** The successful response to a call. */
export interface StepResponse<Data extends Json> {
  readonly status: number
  readonly body: string
  readonly data: Data
}

/** Settings of the installation that steps may use. */
export interface ProcessSettings {
  readonly demoApiUrl: string
  /** The folder for files that steps write. */
  readonly dataDir: string
}

/**
 * A step of a run. `Initial` is the type of the initial data, `Previous` is the preceding step function, and
 * `Items` names the earlier steps that `item` can read: `Step<string, typeof report, { order: typeof order }>`.
 */
export interface Step<
  Initial = Json,
  Previous extends AnyStep | null = null,
  Items extends Readonly<Record<string, AnyStep>> = Readonly<Record<string, AnyStep>>,
> {
  readonly process: string
  readonly name: string
  readonly transactionId: string
  readonly replayId: number
  readonly isReplay: boolean
  readonly realm: string | null
  /** Counts the attempts of this step, from 1. */
  readonly attempt: number
  /**
   * The idempotency key that the step's call sends. The key is the same in every attempt of the step. A replay has
   * another key.
   */
  readonly idempotencyKey: string
  readonly initialData: Initial
  /** The previous step; `null` in the first step of the process. */
  readonly previous: Previous extends AnyStep ? StepItem<DataOf<Previous>> : null
  /** Returns a finished step of this run by its name. */
  item<Name extends keyof Items & string>(name: Name): StepItem<DataOf<Items[Name]>>
  readonly settings: ProcessSettings
  /** Writes files that survive a power failure. */
  readonly files: Files
  /** Is aborted when the run is cancelled, its lease is lost, the step times out, or the coordinator shuts down. */
  readonly signal: AbortSignal
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>
  /**
   * Makes an HTTP call with this step's idempotency key. A 2xx response completes the step. Any other result
   * ends the attempt here: the step is retried later, fails, or waits for the credential.
   */
  execute<Data extends Json = Json>(
    request: StepRequest,
    options?: ExecuteOptions<Data>,
  ): Promise<StepResponse<Data>>
  /** Completes the step without a call. */
  complete<Data extends Json = null>(data?: Data): { readonly data: Data }
  /** Ends the step and the run as failed. */
  fail(reason: string): never
  /** Ends this attempt without charging it. The step starts again after `delayMs`, which is at most a year. */
  waitFor(delayMs: number): never
  /** Completes the step and the run, even if further steps follow. */
  setStatus(status: 'Completed'): void
}

/** The argument of `confirm`: the step, with `find` in place of `execute`. */
export type InDoubtStep<Of extends AnyStep> = Omit<Parameters<Of>[0], 'execute'> & {
  /**
   * Queries the target for the effect of the earlier call, without an idempotency key. Returns `null` for 404
   * and 410. Any other status except 2xx ends the attempt as it would in `execute`, and the step stays in
   * doubt.
   */
  find<Data extends Json = Json>(
    request: StepRequest,
    options?: ExecuteOptions<Data>,
  ): Promise<StepResponse<Data> | null>
}

/**
 * Defines a step with a `confirm` function, which is called before the step runs again if an earlier attempt is
 * in doubt. An attempt is in doubt if it sent a call and then its worker was lost, no response arrived, or the
 * response leaves open whether the work was done (500, 502, 504).
 *
 * `confirm` returns `step.complete(data)` if the work was done, or `'not_done'`, and then the step runs again.
 * If `confirm` cannot decide yet, it throws or calls `step.waitFor`, and is called again later. A step without
 * a `confirm` runs again with the same idempotency key, which the target has to recognise.
 */
export const defineStep = <Run extends AnyStep>(
  run: Run,
  options: {
    readonly confirm: (
      step: InDoubtStep<Run>,
    ) => Promise<{ readonly data: DataOf<Run> } | 'not_done'>
  },
): Run & { readonly confirm: (step: never) => unknown } =>
  // The function is copied with `bind`, because another process definition may use the same function without `confirm`.
  Object.assign(run.bind(null) as Run, { confirm: options.confirm })
