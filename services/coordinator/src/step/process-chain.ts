/** The types of `defineProcess(…).step(…)`. They infer the type of each step from the steps before it. */
import type { z } from 'zod'
import type { AskOptions } from './ask.ts'
import type { ProcessDefinition } from './definition.ts'
import type { BookObject, ChangeOptions } from './change-place.ts'
import type { ForEachItem, ForEachOptions } from './children-place.ts'
import type { EventOptions } from './event.ts'
import type { Json, JsonInput } from '../run/json-normalization.ts'
import type { SettingSchemas, StepSettings } from './settings.ts'
import type {
  AnyStep,
  DataOf,
  Entered,
  ForEachStep,
  InDoubt,
  NamedSteps,
  ProcessSettings,
  Step,
  StepOptions,
  StepResult,
  Undo,
  When,
} from './step.ts'
import type { Targets } from './targets.ts'

/** The type of an earlier step in the type of a later step. Only its return type is known. */
type StepOf<Result> = (step: unknown) => Result

/**
 * The result of a step in the type of a later step. The data of a step that may be skipped may be `null`. `Skips` is what
 * the `when` of the step returns, and `never` if the step has none.
 */
type Finished<Result, Skips> = [Skips] extends [never]
  ? Result
  : { readonly data: DataOf<StepOf<Result>> | null }

/**
 * A process definition to which steps can be added. Each added step is type-checked against the initial data, the
 * settings and the targets of the process, and against the data of the earlier steps.
 */
export interface ProcessChain<
  Initial,
  Previous extends AnyStep | null,
  Items extends NamedSteps,
  Settings,
  TargetName extends string,
  Accepts = unknown,
> extends ProcessDefinition {
  /** The type of the initial data that clients pass: `process<typeof invoice>('Invoice')`. It exists in the types only. @internal */
  readonly '~accepts': Accepts
  /**
   * Returns a copy of this definition with one more step at the end.
   *
   * @throws {TypeError} if the name is invalid or already used, or if the options are invalid.
   */
  step<
    const Name extends string,
    Result extends StepResult,
    State extends z.ZodType | null = null,
    Skips extends boolean = never,
  >(
    name: Name extends keyof Items ? never : Name,
    run: (step: Step<Initial, Previous, Items, Settings, TargetName, State>) => Result,
    options?: StepOptions<
      InDoubt<Step<Initial, Previous, Items, Settings, TargetName, State>, TargetName>,
      DataOf<StepOf<NoInfer<Result>>>
    > & {
      readonly state?: State
      readonly undo?: Undo<
        Step<
          Initial,
          Previous,
          Items & { readonly [Key in Name]: StepOf<Result> },
          Settings,
          TargetName
        >,
        TargetName
      >
      readonly when?: When<Entered<Initial, Previous, Items, Settings>, Skips>
    },
  ): ProcessChain<
    Initial,
    StepOf<Finished<Result, Skips>>,
    Items & { readonly [Key in Name]: StepOf<Finished<Result, Skips>> },
    Settings,
    TargetName,
    Accepts
  >
  /**
   * Returns a copy of this definition with one more place at the end: the run waits there for an event, such as an
   * approval, without occupying a worker. The event is sent with `POST …/transactions/{id}/events/{name}`, by the client,
   * the command line, the console or a message.
   *
   * @throws {TypeError} if the name is invalid or already used, or if the options are invalid.
   */
  event<
    const Name extends string,
    Data extends z.ZodType<JsonInput> = z.ZodType<Json>,
    const OnTimeout extends 'fail' | 'continue' = 'fail',
    Skips extends boolean = never,
  >(
    name: Name extends keyof Items ? never : Name,
    options?: EventOptions<Data> &
      AskOptions<Entered<Initial, Previous, Items, Settings>, MemberOf<Data>> & {
        readonly onTimeout?: OnTimeout
        readonly when?: When<Entered<Initial, Previous, Items, Settings>, Skips>
      },
  ): ProcessChain<
    Initial,
    EventOf<Data, OnTimeout, Skips>,
    Items & { readonly [Key in Name]: EventOf<Data, OnTimeout, Skips> },
    Settings,
    TargetName,
    Accepts
  >
  /**
   * Returns a copy of this definition with one more place at the end: the run waits there until an object in the books of
   * its company satisfies `until`, such as an invoice that is paid. The object is read when the run gets there and after
   * each change of it, and at no other time.
   *
   * @throws {TypeError} if the name is invalid or already used, or if the options are invalid.
   */
  change<
    const Name extends string,
    const May extends 'fail' | 'continue' = 'fail',
    const OnDeleted extends 'fail' | 'continue' = 'fail',
    Condition extends When<Entered<Initial, Previous, Items, Settings>> | undefined = undefined,
  >(
    name: Name extends keyof Items ? never : Name,
    options: ChangeOptions & {
      readonly id: (step: Entered<Initial, Previous, Items, Settings>) => string
      readonly onTimeout?: May
      readonly onDeleted?: OnDeleted
      readonly when?: Condition & When<Entered<Initial, Previous, Items, Settings>>
    },
  ): ProcessChain<
    Initial,
    ChangedOf<May | OnDeleted | SkipsIf<Condition>>,
    Items & { readonly [Key in Name]: ChangedOf<May | OnDeleted | SkipsIf<Condition>> },
    Settings,
    TargetName,
    Accepts
  >
  /**
   * Returns a copy of this definition with one more place at the end: the run starts one child for each item of a list, as
   * a run of the process `children`, and waits without occupying a worker until all of them have ended. Its data counts
   * the children; `step.children(name)` reads them.
   *
   * @throws {TypeError} if the name is invalid or already used, or if the options are invalid.
   */
  forEach<
    const Name extends string,
    ChildInitial,
    ChildPrevious extends AnyStep | null,
    ChildItems extends NamedSteps,
    ChildSettings,
    ChildTarget extends string,
    Condition extends When<Entered<Initial, Previous, Items, Settings>> | undefined = undefined,
  >(
    name: Name extends keyof Items ? never : Name,
    children: ProcessChain<ChildInitial, ChildPrevious, ChildItems, ChildSettings, ChildTarget>,
    options: ForEachOptions & {
      /**
       * Returns the list. It may only compute, must return the list at once, and must return the same for the same run: it
       * is called again for each page of 1,000 items, and after a crash or a resume.
       */
      readonly items: (
        step: Entered<Initial, Previous, Items, Settings>,
      ) => readonly ForEachItem<ChildInitial>[]
      readonly when?: Condition & When<Entered<Initial, Previous, Items, Settings>>
    },
  ): ProcessChain<
    Initial,
    ForEachStep<LastDataOf<ChildPrevious>, NullIf<Condition>>,
    Items & { readonly [Key in Name]: ForEachStep<LastDataOf<ChildPrevious>, NullIf<Condition>> },
    Settings,
    TargetName,
    Accepts
  >
}

/** The data of the last step of a process. */
type LastDataOf<Previous extends AnyStep | null> = Previous extends AnyStep
  ? DataOf<Previous>
  : Json

/** `null` if the place has a condition, because it may then be skipped. */
type NullIf<Condition> = Condition extends undefined ? never : null

/** The names of the members of the data of an event. */
type MemberOf<Data extends z.ZodType> = keyof z.output<Data> & string

/** `continue` if the place has a condition, because it may then be skipped. */
type SkipsIf<Condition> = Condition extends undefined ? never : 'continue'

/** The type of a change in the type of a later step: the object, or `null` if the run may go on without it. */
type ChangedOf<May> = StepOf<{
  readonly data: BookObject | ('continue' extends May ? null : never)
}>

/** The type of an event in the type of a later step. An event that may be skipped or missing has the data `null`. */
type EventOf<Data extends z.ZodType, OnTimeout, Skips> = StepOf<{
  readonly data:
    | z.output<Data>
    | (OnTimeout extends 'continue' ? null : never)
    | ([Skips] extends [never] ? never : null)
}>

/** A type without members, so that no name is a key of the type. With an index signature, every name would be a key. */
// oxlint-disable-next-line typescript/no-generated-empty-object-type
export type None = Readonly<Record<never, never>>

/** A process without steps. Adding the first step returns a process definition. */
export type ProcessStart<
  Input extends z.ZodType,
  Schemas extends SettingSchemas,
  Named extends Targets,
> = Pick<
  ProcessChain<
    z.output<Input>,
    null,
    None,
    ProcessSettings & StepSettings<Schemas>,
    keyof Named & string,
    z.input<Input>
  >,
  'name' | 'step' | 'event' | 'change' | 'forEach'
>
