/** The types of steps and of the argument that a step function gets: the interface for authors of process files. */
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Files } from './files.ts'
import type { StepRequest } from './step-request.ts'
import type { Json } from './json-normalization.ts'

/** Any step function, whatever types it expects of the earlier steps; with its `confirm`, if it has one. */
export interface AnyStep {
  (step: never): unknown
  readonly confirm?: (step: never) => unknown
}

/** The data a step leaves for the next: the result of `parse`, or the argument of `complete`. */
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
  /** For the whole call, including the connect. Default: 60 seconds. */
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
 * A step of a run. `Initial` is the type of the initial data, `Previous` the step function before this one,
 * `Items` the earlier steps that `item` can read: `Step<string, typeof report, { order: typeof order }>`.
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
  /** Sent with the step's call: the same in every attempt, another one in a replay. */
  readonly idempotencyKey: string
  readonly initialData: Initial
  /** The previous step; `null` in the first one. */
  readonly previous: Previous extends AnyStep ? StepItem<DataOf<Previous>> : null
  /** A finished step of this run by name. */
  item<Name extends keyof Items & string>(name: Name): StepItem<DataOf<Items[Name]>>
  readonly settings: ProcessSettings
  /** Writes files that survive a power failure. */
  readonly files: Files
  /** Aborts when the run is cancelled, its lease is lost, the step times out, or the coordinator shuts down. */
  readonly signal: AbortSignal
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>
  /**
   * Makes an HTTP call with this step's idempotency key. 2xx completes the step. Any other result ends it here:
   * it is retried later, fails, or waits for the credential.
   */
  execute<Data extends Json = Json>(
    request: StepRequest,
    options?: ExecuteOptions<Data>,
  ): Promise<StepResponse<Data>>
  /** Completes the step without a call. */
  complete<Data extends Json = null>(data?: Data): { readonly data: Data }
  /** Ends the step and the run as failed. */
  fail(reason: string): never
  /** Ends this attempt without charging it; the step starts again after `delayMs`, at most a year. */
  waitFor(delayMs: number): never
  /** Completes the step and the run, even if further steps follow. */
  setStatus(status: 'Completed'): void
}

/** What `confirm` sees: the step, with `find` in place of `execute`. */
export type InDoubtStep<Of extends AnyStep> = Omit<Parameters<Of>[0], 'execute'> & {
  /**
   * Queries the target for the effect of the earlier call, without an idempotency key. `null` for 404 and 410;
   * any other status but 2xx ends the attempt as it would end `execute`, and the step stays in doubt.
   */
  find<Data extends Json = Json>(
    request: StepRequest,
    options?: ExecuteOptions<Data>,
  ): Promise<StepResponse<Data> | null>
}

/**
 * Defines a step with a `confirm`. It is called before the step runs again if an earlier attempt is in doubt: a
 * call was sent, and then its worker was lost, or no response arrived, or the response leaves open whether the
 * work was done (500, 502, 504).
 *
 * `confirm` returns `step.complete(data)` if the work was done, or `'not_done'`: then the step runs. If it cannot
 * tell yet, it throws or calls `step.waitFor`, and is called again later. Without a `confirm` the step runs again
 * with the same idempotency key, and the target has to recognise it.
 */
export const defineStep = <Run extends AnyStep>(
  run: Run,
  options: {
    readonly confirm: (
      step: InDoubtStep<Run>,
    ) => Promise<{ readonly data: DataOf<Run> } | 'not_done'>
  },
): Run & { readonly confirm: (step: never) => unknown } =>
  // A bound copy, because the same function may be a step elsewhere without a confirm.
  Object.assign(run.bind(null) as Run, { confirm: options.confirm })
