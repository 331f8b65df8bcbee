/** The types of steps and of the argument that a step function gets: the interface for authors of process files. */
import type { ForEachSettings } from './children-place.ts'
import type { EventSettings } from './event.ts'
import type { z } from 'zod'
import type { ChildrenResult } from '../run/families.ts'
import type { Files } from './files.ts'
import type { StepLog } from './redaction.ts'
import type {
  MarkedEntity,
  MarkField,
} from '@integration-host/shared/provider-profile/queryable-fields'
import type { RetryPolicy } from '../run/retry-policy.ts'
import type { StepRequest, TargetRequest } from './step-request.ts'
import type { Json, JsonInput } from '../run/json-normalization.ts'

/** A step function of any type. If it was defined with `defineStep`, it has the options of `defineStep`. */
export interface AnyStep {
  (step: never): unknown
  /** The options of `defineStep`, if the step has any; see {@link StepOptions}. */
  readonly confirm?: (step: never) => unknown
  readonly retry?: Partial<RetryPolicy>
  readonly timeoutMs?: number
  /** How the effect of the step is taken back; see {@link Undo}. */
  readonly undo?: AnyUndo
  /** Set if the run waits for an event here; the function is not called then. @internal */
  readonly event?: EventSettings
  /** Set if the run has children here; the function is not called then. @internal */
  readonly forEach?: ForEachSettings
  readonly when?: (entered: never) => boolean
  readonly state?: z.ZodType
  readonly maxRounds?: number
}

type AnyUndo = AnyCall | { readonly run: AnyCall; readonly confirm?: AnyCall }
type AnyCall = (step: never) => unknown

/** The data that a step passes to the next step: the data that `parse` returns, or the argument of `complete`. */
export type DataOf<Of> = Of extends (step: never) => infer Result
  ? Awaited<Result> extends { readonly data: infer Data }
    ? Data
    : Json
  : Json

declare const OUTCOME: unique symbol

/**
 * How a step ends. A step function has to return what `execute`, `complete`, `setStatus`, `fail`, `waitFor` or `repeat`
 * returned, so a step that forgets to end does not compile. The mark exists in the types only.
 */
export interface Outcome<Data = unknown> {
  readonly data: Data
  readonly [OUTCOME]: true
}

/** What a step function returns. */
export type StepResult = Outcome | Promise<Outcome>

/**
 * A finished step of this run. `TransactionID`, `ReplayID` and `ResponseBody` are spelled as in the HTTP API and the
 * tables; all other members begin with a small letter.
 */
export interface StepItem<Data = Json> {
  /** The name of the step. */
  readonly name: string
  readonly TransactionID: string
  readonly ReplayID: number
  /** The body of the response to the step's last call; `null` if the step has made no call. */
  readonly ResponseBody: string | null
  /** The status of the response to the step's last call; `null` if the step has made no call. */
  readonly responseStatus: number | null
  /** The data of the step: the result of `parse`, or the argument of `complete`. */
  readonly data: Data
  /**
   * How the step ended. The data is `null` of a step that was skipped, because its `when` returned false, and of an event
   * for which the run has waited too long.
   */
  readonly outcome: ItemOutcome
}

/** How a finished step ended. `timed_out` is an event that did not arrive in time. */
export type ItemOutcome = 'completed' | 'skipped' | 'timed_out'

/** The options of every call. */
export interface CallOptions {
  /**
   * The credential of the call, `ACC-<realm>`. The call goes through the gateway, which adds the current access token
   * of the realm.
   */
  readonly credential?: string
  /** The time limit of the whole call, including connecting. Default: the time limit of the target, or 60 seconds. */
  readonly timeoutMs?: number
}

/** The options of a call whose response completes the step. */
export interface ExecuteOptions<Data extends JsonInput> extends CallOptions {
  /** Returns the step's data from the parsed JSON body. It should throw if the body is not as expected. */
  readonly parse?: (body: unknown) => Data
}

/** The options of `update`. */
export type UpdateOptions<Data extends JsonInput> = Omit<ExecuteOptions<Data>, 'credential'>

/** An object of the books, with the members that the accounting API gives it. */
export type ObjectBody = Readonly<Record<string, JsonInput | undefined>>

/** The options of `createOnce`. */
export interface CreateOnceOptions<Entity extends MarkedEntity, Data extends JsonInput> {
  /**
   * What identifies the object: a field by which the accounting API can find it, and its value, which becomes part of the
   * object. The value must be the same in every attempt, so compute it from the initial data.
   */
  readonly mark: { readonly field: MarkField<Entity>; readonly value: string }
  /**
   * What happens if the mark belongs to another run. `fail` (the default): the run fails as `already_exists`. `adopt`: the
   * step completes with the existing object; an object that no run has created is adopted as well, if it is the only one
   * with this value.
   */
  readonly onExisting?: 'fail' | 'adopt'
  /** Returns the step's data from the body, `{ Invoice: { … } }`. Default: `Id` and `SyncToken` of the object. */
  readonly parse?: (body: unknown) => Data
  /** The time limit of each call in milliseconds. Default: 60 seconds. */
  readonly timeoutMs?: number
}

/** The data of a step that has created an object: what the next steps need to change it. */
export type CreatedObject = { readonly Id: string; readonly SyncToken: string | null }

/** Which object `entry` returns. */
export interface EntryOptions {
  /** The process that has created the object. Default: the process of the run. */
  readonly process?: string
  /** The id of the transaction whose run has created the object. */
  readonly transaction: string
  /** The step that has created the object; needed if the run has created several of this kind. */
  readonly step?: string
}

/** The successful response to a call. */
export interface StepResponse<Data extends JsonInput> {
  /** The HTTP status, a 2xx. */
  readonly status: number
  /** The body as text. */
  readonly body: string
  /** The result of `parse`; `null` without `parse`. */
  readonly data: Data
}

/** The response that `fetch` returns. */
export interface StepReply {
  /** The HTTP status. */
  readonly status: number
  /** Whether the status is 2xx. */
  readonly ok: boolean
  /** The body as text. */
  readonly body: string
  /** Returns the first value of a header; `null` if the response has no such header. */
  header(name: string): string | null
  /**
   * Returns the result of `parse` for the parsed JSON body. The step fails as `response_invalid` if the body is not
   * JSON or if `parse` throws.
   */
  parse<Data>(parse: (body: unknown) => Data): Data
}

/** The settings of the installation that steps may use. */
export interface ProcessSettings {
  /** The folder for files that steps write. */
  readonly dataDir: string
}

/** Step functions by name. */
export type NamedSteps = Readonly<Record<string, AnyStep>>

/** What is known of a run when it enters a step: the argument of `when`. */
export interface Entered<
  Initial = Json,
  Previous extends AnyStep | null = null,
  Items extends NamedSteps = NamedSteps,
  Settings = ProcessSettings,
> {
  /** The name of the process. */
  readonly process: string
  /** The name of the step. */
  readonly name: string
  readonly transactionId: string
  /** The number of the run within its transaction: 0 for the first run, and one more for each replay. */
  readonly replayId: number
  readonly isReplay: boolean
  /** The `version` that the process had when this run began; `null` if it had none. */
  readonly version: string | null
  /** The company of the run; `null` if the transaction was queued without `Realm`. */
  readonly realm: string | null
  /** The initial data of the run, as the `input` schema of the process returns it. */
  readonly initialData: Initial
  /** The previous step; `null` in the first step of the process. */
  readonly previous: Previous extends AnyStep ? StepItem<DataOf<Previous>> : null
  /** Returns a finished step of this run by its name. */
  item<Name extends keyof Items & string>(name: Name): StepItem<DataOf<Items[Name]>>
  /** The settings of the process, without its secrets, and the settings of the installation. */
  readonly settings: Settings
}

/** The options of `linkTo`. */
export interface LinkOptions {
  /** Who decides with the address: a name or an e-mail address, at most 100 characters. */
  readonly for: string
  /** How long the address can be used, in seconds. Default: 7 days; at most the timeout of the event. */
  readonly expiresInSeconds?: number
}

/** How much of its work a step has done. */
export interface Progress {
  /** The part that is done, in the unit of `of`. */
  readonly done: number
  readonly of: number
  /** A text of at most 200 characters. A longer text is cut off. */
  readonly note?: string
}

/**
 * A step of a run. `Initial` is the type of the initial data, `Previous` is the preceding step function, and
 * `Items` names the earlier steps that `item` can read: `Step<string, typeof report, { order: typeof order }>`.
 * `Settings` are the settings that the step can read, `TargetName` the names of the targets that it can call, and `State`
 * the schema of its option `state`.
 * `defineProcess(…).step(…)` infers all of them.
 */
export interface Step<
  Initial = Json,
  Previous extends AnyStep | null = null,
  Items extends NamedSteps = NamedSteps,
  Settings = ProcessSettings,
  TargetName extends string = string,
  State extends z.ZodType | null = null,
> extends Entered<Initial, Previous, Items, Settings> {
  /** The number of this attempt of the step, from 1. In a step that repeats, each round has attempts of its own. */
  readonly attempt: number
  /**
   * The idempotency key that the step's call sends. It is the same in every attempt of the step, and different in every
   * replay and in every round of a step that repeats.
   */
  readonly idempotencyKey: string
  /** The number of the round: 0, and one more after each `repeat`. */
  readonly round: number
  /** The state that `repeat` got at the end of the previous round; `undefined` in round 0. */
  readonly state: State extends z.ZodType ? z.output<State> | undefined : undefined
  /** Writes files that survive a power failure. */
  readonly files: Files
  /**
   * A signal that is aborted when the run is cancelled, the lease of the run is lost, the step times out, or the
   * coordinator shuts down.
   */
  readonly signal: AbortSignal
  /** A logger whose lines name the run and the step. */
  readonly log: StepLog
  /**
   * Makes an HTTP call with this step's idempotency key. A 2xx response completes the step. Any other result
   * ends the attempt here: the step is retried later, fails, or waits for the credential.
   */
  execute<Data extends JsonInput = Json>(
    request: StepRequest | TargetRequest<TargetName>,
    options?: ExecuteOptions<Data>,
  ): Promise<StepResponse<Data> & Outcome<Data>>
  /**
   * Makes a call that does not decide the status of the step. The step evaluates the response, and then calls
   * `complete`, `waitFor` or `fail`. In four cases the attempt ends as in `execute`: there is no response, the response
   * starts a cool-down (429), the access token has expired (401 with a credential), or the credential cannot be
   * refreshed. Each fetch has its own idempotency key; the idempotency key of the step is reserved for `execute`.
   */
  fetch(request: StepRequest | TargetRequest<TargetName>, options?: CallOptions): Promise<StepReply>
  /**
   * Changes an object in the books of the company of the run, and completes the step like `execute`. The object is read,
   * and the members of `change` are sent as a sparse update of this version. If another program changes the object
   * meanwhile, the update is sent once more, unless that program has changed the same fields: then the run fails as
   * `changed_outside`, and its error names the fields.
   *
   * @param entity the kind of the object, such as `Invoice`
   */
  update<Data extends JsonInput = Json>(
    entity: string,
    id: string,
    change: Readonly<Record<string, JsonInput | undefined>>,
    options?: UpdateOptions<Data>,
  ): Promise<StepResponse<Data> & Outcome<Data>>
  /**
   * Creates an object in the books of the company of the run, and completes the step like `execute`. At most one object is
   * created, whatever ends an attempt: if a call may have taken effect, the books are queried for the mark before it is sent
   * again, some minutes later. The step needs no `confirm` for this.
   *
   * The run fails as `already_exists` if the mark belongs to another run, and as `mark_ambiguous` if each of several new
   * objects may be the one of an earlier call; their ids are in the error.
   *
   * @param entity the kind of the object, such as `Invoice`
   */
  createOnce<Entity extends MarkedEntity, Data extends JsonInput = CreatedObject>(
    entity: Entity,
    body: ObjectBody,
    options: CreateOnceOptions<Entity, Data>,
  ): Promise<StepResponse<Data> & Outcome<Data>>
  /**
   * Returns the id of the object that an earlier run of this company has created, according to the book of entries: of the
   * latest run of the transaction that has created one. The run fails as `entry_not_found` if none has, and as
   * `entry_ambiguous` if this run has created several and `step` is not named.
   *
   * @param entity the kind of the object, such as `Invoice`
   */
  entry(entity: string, options: EntryOptions): Promise<string>
  /** Completes the step without a call. */
  complete<Data extends JsonInput = null>(data?: Data): Outcome<Data>
  /**
   * Ends the step and the run as failed. With `undo`, the finished steps are undone first, and the run ends as `Undone`.
   */
  fail(reason: string, options?: { readonly undo?: boolean }): never
  /** Ends this attempt without counting it. The step starts again after `delayMs`, which is at most a year. */
  waitFor(delayMs: number): never
  /**
   * Ends this round and runs the step again with `state`, which has at most 64 KB as JSON: at once, or after `afterMs`,
   * which is at most a year. The next round has its own idempotency key, attempts and time limit. The step needs the
   * option `state`.
   */
  repeat(
    state: State extends z.ZodType ? z.input<State> : never,
    options?: { readonly afterMs?: number },
  ): never
  /** Shows on the run how much of its work the step has done. It is stored when the lease of the run is next renewed. */
  report(progress: Progress): void
  /**
   * Returns the address of the page on which a person decides about an event of this run that has `ask`. Who has the
   * address decides as this person, so send it only to this person. It can be used until the decision, and is void when the
   * run is over or replayed.
   *
   * @throws {TypeError} if the process has no such event, or `for` is not a name.
   */
  linkTo(event: string, options: LinkOptions): string
  /**
   * Reads the children that a place of this run has started, in the order of the list and page by page, so that a long
   * list needs little memory: `for await (const child of step.children('lines'))`. There are none if the list was empty or
   * the place was skipped.
   */
  children<Name extends keyof Items & string>(
    name: Name,
  ): AsyncIterable<Child<ChildDataOf<Items[Name]>>>
  /** Completes the step and the run, even if further steps follow. */
  setStatus(status: 'Completed'): Outcome<null>
}

/** A child that a place of the run has started. */
export interface Child<Data = Json> {
  /** The id of the item. */
  readonly id: string
  readonly transactionId: string
  readonly status: string
  /** The data of the last step of the child; `null` unless the child is completed. */
  readonly data: Data | null
  /** Why the child has not been completed: its error class and the text of its error; `null` if it is completed. */
  readonly errorClass: string | null
  readonly error: string | null
}

declare const CHILD: unique symbol
/** The type of a place with children, in the type of a later step. `Data` is the data of the last step of a child. */
export type ForEachStep<Data, May = never> = ((step: unknown) => {
  readonly data: ChildrenResult | May
}) & {
  readonly [CHILD]?: Data
}
/** The data of the children of a place. */
export type ChildDataOf<Of> = Of extends { readonly [CHILD]?: infer Data } ? Data : Json

/** The argument of `confirm`. */
export type InDoubtStep<Of extends AnyStep> = InDoubt<Parameters<Of>[0], string>

/** The argument of `confirm`: a step that can query its target with `find`, but cannot make any other call. */
export type InDoubt<Given, TargetName extends string> = Omit<
  Given,
  'execute' | 'createOnce' | 'update'
> & {
  /**
   * Queries the target for the effect of the earlier call, without an idempotency key. Returns `null` for 404
   * and 410. Any other status except 2xx ends the attempt as it would in `execute`, and the step stays in
   * doubt.
   */
  find<Data extends JsonInput = Json>(
    request: StepRequest | TargetRequest<TargetName>,
    options?: ExecuteOptions<Data>,
  ): Promise<StepResponse<Data> | null>
}

/**
 * How the effect of a finished step is taken back. The function is called when the run is undone, with the argument of the
 * step: `step.item(name)` also returns the item of the step itself, and `step.idempotencyKey` is another one than that of
 * the step. It ends like a step, for example with `execute` or `complete`, and has the retries and the time limit of the
 * step. `confirm` is called first if an earlier attempt of the undo is in doubt.
 */
export type Undo<Given, TargetName extends string = string> =
  | ((step: UndoStep<Given>) => StepResult)
  | {
      readonly run: (step: UndoStep<Given>) => StepResult
      readonly confirm?: (
        step: InDoubt<UndoStep<Given>, TargetName>,
      ) => Promise<Outcome | 'not_done'>
    }
/** The argument of `undo`. */
export type UndoStep<Given> = Omit<Given, 'repeat' | 'round' | 'setStatus' | 'state'>

/**
 * The options of a step. `Given` is the argument of `confirm`, and `Data` the data that the step passes to later steps.
 */
export interface StepOptions<Given, Data> {
  /**
   * Called before the step runs again, if an earlier attempt is in doubt. An attempt is in doubt if it sent a call and
   * one of the following happened: its worker was lost, no response arrived, or the response does not show whether the
   * call took effect (500, 502, 504).
   *
   * Returns `step.complete(data)` if the call took effect, or `'not_done'` if the step must run again. If the function
   * cannot decide yet, it throws or calls `step.waitFor`, and is called again later. A step without `confirm` runs
   * again with the same idempotency key, which the target has to recognise.
   */
  readonly confirm?: (step: Given) => Promise<Outcome<Data> | 'not_done'>
  /**
   * How many times this step is attempted, and the pauses between the attempts. The members that are set here replace
   * the members of `retry` in the process.
   */
  readonly retry?: Partial<RetryPolicy>
  /** The time limit of an attempt of this step in milliseconds, instead of `stepTimeoutSeconds` of its process. */
  readonly timeoutMs?: number
  /**
   * The schema of the state of a step that repeats. It checks the state when the step calls `repeat`, and again when the
   * next round begins. Without this option, a step cannot call `repeat`.
   */
  readonly state?: z.ZodType
  /**
   * The maximum number of rounds, at most 1,000,000. A step that calls `repeat` in the last of them fails as
   * `rounds_used_up`. Default: 10,000.
   */
  readonly maxRounds?: number
}

/**
 * Returns whether a run executes a step. It is called before each attempt of the step, except in later rounds. It may only
 * compute, must return `true` or `false` at once, and must return the same for the same run. After `false` the step is
 * skipped, and its data is `null`. If the function throws, the run fails as `step_threw`; a resume calls it again.
 */
export type When<Given, Result extends boolean = boolean> = (entered: Given) => Result

/** Defines a step with options, to be added with `.step(…)`. */
export const defineStep = <Run extends AnyStep>(
  run: Run,
  options: StepOptions<InDoubtStep<Run>, DataOf<Run>> & {
    readonly undo?: Undo<Parameters<Run>[0]>
  },
): Run => withOptions(run, options)

/** Returns a copy of a step with these options. */
export const withOptions = <Run extends AnyStep>(run: Run, options: object): Run =>
  // `bind` makes a copy of the function. Another process definition may use the same function without options.
  Object.assign(run.bind(null) as Run, givenOf(run), givenOf(options))

/** The names of the options of a step. */
export const stepOptionNames = [
  'confirm',
  'retry',
  'timeoutMs',
  'when',
  'state',
  'maxRounds',
  'undo',
] as const satisfies readonly (keyof AnyStep)[]

/** Returns the options that are set, because an absent option must not overwrite one that the function already has. */
const givenOf = (options: Partial<AnyStep>): Partial<AnyStep> =>
  Object.fromEntries(
    stepOptionNames.flatMap((name) => (options[name] === undefined ? [] : [[name, options[name]]])),
  )
