/** The types of `defineProcess(…).step(…)`. They infer the type of each step from the steps before it. */
import type { z } from 'zod'
import type { ProcessDefinition } from './definition.ts'
import type { EventOptions } from './event.ts'
import type { Json, JsonInput } from '../run/json-normalization.ts'
import type { SettingSchemas, StepSettings } from './settings.ts'
import type {
  AnyStep,
  DataOf,
  Entered,
  InDoubt,
  NamedSteps,
  ProcessSettings,
  Step,
  StepOptions,
  When,
} from './step.ts'
import type { Targets } from './targets.ts'

/** The type of an earlier step in the type of a later step. Only its return type is known. */
type StepOf<Result> = (step: unknown) => Result

/** The options of a step of a chain, without `when`. */
type ChainOptions<
  Given,
  TargetName extends string,
  Result,
  State extends z.ZodType | null,
> = StepOptions<InDoubt<Given, TargetName>, DataOf<StepOf<NoInfer<Result>>>> & {
  readonly state?: State
}

/** The type of a step that may be skipped. Its data is then `null`. */
type MaybeSkipped<Result> = { readonly data: DataOf<StepOf<Result>> | null }

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
> extends ProcessDefinition {
  /**
   * Returns a copy of this definition with one more step at the end.
   *
   * @throws {TypeError} if the name is invalid or already used, or if the options are invalid.
   */
  step<const Name extends string, Result, State extends z.ZodType | null = null>(
    name: Name extends keyof Items ? never : Name,
    run: (step: Step<Initial, Previous, Items, Settings, TargetName, State>) => Result,
    options: ChainOptions<
      Step<Initial, Previous, Items, Settings, TargetName, State>,
      TargetName,
      Result,
      State
    > & { readonly when: When<Entered<Initial, Previous, Items, Settings>> },
  ): ProcessChain<
    Initial,
    StepOf<MaybeSkipped<Result>>,
    Items & { readonly [Key in Name]: StepOf<MaybeSkipped<Result>> },
    Settings,
    TargetName
  >
  step<const Name extends string, Result, State extends z.ZodType | null = null>(
    name: Name extends keyof Items ? never : Name,
    run: (step: Step<Initial, Previous, Items, Settings, TargetName, State>) => Result,
    options?: ChainOptions<
      Step<Initial, Previous, Items, Settings, TargetName, State>,
      TargetName,
      Result,
      State
    > & { readonly when?: undefined },
  ): ProcessChain<
    Initial,
    StepOf<Result>,
    Items & { readonly [Key in Name]: StepOf<Result> },
    Settings,
    TargetName
  >
  /**
   * Returns a copy of this definition with one more place at the end: the run waits there for an event, such as an
   * approval, without occupying a worker. The event is sent with `POST …/transactions/{id}/events/{name}`, by the client,
   * the command line, the console or a message.
   *
   * @throws {TypeError} if the name is invalid or already used, or if the options are invalid.
   */
  event<const Name extends string, Data extends z.ZodType<JsonInput> = z.ZodType<Json>>(
    name: Name extends keyof Items ? never : Name,
    options: EventOptions<Data> & {
      readonly when: When<Entered<Initial, Previous, Items, Settings>>
    },
  ): ProcessChain<
    Initial,
    EventOf<Data, 'continue'>,
    Items & { readonly [Key in Name]: EventOf<Data, 'continue'> },
    Settings,
    TargetName
  >
  event<
    const Name extends string,
    Data extends z.ZodType<JsonInput> = z.ZodType<Json>,
    const OnTimeout extends 'fail' | 'continue' = 'fail',
  >(
    name: Name extends keyof Items ? never : Name,
    options?: EventOptions<Data> & { readonly onTimeout?: OnTimeout; readonly when?: undefined },
  ): ProcessChain<
    Initial,
    EventOf<Data, OnTimeout>,
    Items & { readonly [Key in Name]: EventOf<Data, OnTimeout> },
    Settings,
    TargetName
  >
}

/** The type of an event in the type of a later step. An event that may be skipped or missing has the data `null`. */
type EventOf<Data extends z.ZodType, OnTimeout> = StepOf<{
  readonly data: z.output<Data> | (OnTimeout extends 'continue' ? null : never)
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
    keyof Named & string
  >,
  'name' | 'step' | 'event'
>
