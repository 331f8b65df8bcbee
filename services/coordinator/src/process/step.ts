/** What a step is, and what it sees of its run. */
import type { Logger } from '@integration-host/shared/logger'
import type { StepRequest } from './step-request.ts'
import type { Json } from './json-normalization.ts'

/** Any step function, whatever it expects of the ones before it; with a `confirm` when it has one. */
export interface AnyStep {
  (step: never): unknown
  readonly confirm?: (step: never) => unknown
}

/** The data a step leaves for the next: what its `execute` parsed, or what it gave to `complete`. */
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
  /** Makes the step's data of the parsed JSON body; throws when the answer is not what was expected. */
  readonly parse?: (body: unknown) => Data
  /** `ACC-<realm>`: the call goes through the gateway, which adds that realm's current access token. */
  readonly credential?: string
  /** For this call, connecting included; 60 seconds unless given. */
  readonly timeoutMs?: number
}

/** What a call answered. */
export interface Answer<Data extends Json> {
  readonly status: number
  readonly body: string
  readonly data: Data
}

/** Settings of the installation that steps may use. */
export interface ProcessSettings {
  readonly demoApiUrl: string
  /** The folder for what steps write. */
  readonly dataDir: string
}

/**
 * A step of a run. `Initial` is the type of the initial data, `Previous` the step function before this one,
 * `Items` the earlier steps that `item` is asked for: `Step<string, typeof report, { order: typeof order }>`.
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
  /** From 1. */
  readonly attempt: number
  /** What the step's call carries: the same in every attempt, another one in a replay. */
  readonly idempotencyKey: string
  readonly initialData: Initial
  /** The step before this one; null in the first. */
  readonly previous: Previous extends AnyStep ? StepItem<DataOf<Previous>> : null
  /** A finished step of this run by name. */
  item<Name extends keyof Items & string>(name: Name): StepItem<DataOf<Items[Name]>>
  readonly settings: ProcessSettings
  /** Aborts when the run is cancelled, its lease lost, its time used up, or the process leaves. */
  readonly signal: AbortSignal
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>
  /**
   * Makes an HTTP call with this step's idempotency key. 2xx completes the step; anything else ends it here:
   * tried again later, failed, or waiting for the credential.
   */
  execute<Data extends Json = Json>(
    request: StepRequest,
    options?: ExecuteOptions<Data>,
  ): Promise<Answer<Data>>
  /** Completes the step without a call. */
  complete<Data extends Json = null>(data?: Data): { readonly data: Data }
  /** Ends the step and the run as failed. */
  fail(reason: string): never
  /** Ends this attempt, uncharged; the step begins anew after `delayMs`, at the latest a year from now. */
  waitFor(delayMs: number): never
  /** Completes the step and the run, whatever steps would follow. */
  setStatus(status: 'Completed'): void
}

/** What `confirm` sees: the step, with `find` in place of `execute`. */
export type InDoubtStep<Of extends AnyStep> = Omit<Parameters<Of>[0], 'execute'> & {
  /**
   * Looks for what the call left, without an idempotency key. Null for 404 and 410; any other answer than 2xx
   * ends the attempt as it would end `execute`, and the step stays in doubt.
   */
  find<Data extends Json = Json>(
    request: StepRequest,
    options?: ExecuteOptions<Data>,
  ): Promise<Answer<Data> | null>
}

/**
 * A step with a `confirm`, which is asked before the step runs again when an earlier attempt is in doubt: a
 * call left, and its worker was lost, or no answer came, or the answer says as much (500, 502, 504).
 *
 * `confirm` returns `step.complete(data)` when the work was done, or `'not_done'`: then the step runs. What
 * it cannot tell yet it asks again later, by throwing or by `step.waitFor`. Without a `confirm` the step runs
 * again with the same idempotency key, and it is the target that has to know it.
 */
export const defineStep = <Run extends AnyStep>(
  run: Run,
  options: {
    readonly confirm: (
      step: InDoubtStep<Run>,
    ) => Promise<{ readonly data: DataOf<Run> } | 'not_done'>
  },
): Run & { readonly confirm: (step: never) => unknown } =>
  // A function of its own: the same `run` may be a step elsewhere, without a confirm.
  Object.assign(run.bind(null) as Run, { confirm: options.confirm })
