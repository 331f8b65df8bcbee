/**
 * The module that process files import. It exports everything that is needed to define a business process.
 *
 * @module integration-host
 */
export { z } from 'zod'
export type { Ask, AskOptions } from './ask.ts'
export { type ChangeTrigger, ProviderChange } from './change-trigger.ts'
export { EntryChange, type EntryTrigger } from './entry-trigger.ts'
export { defineProcess } from './define-process.ts'
export type { ProcessDefinition } from './definition.ts'
export type { BookObject, ChangeOptions } from './change-place.ts'
export type { ForEachItem, ForEachOptions } from './children-place.ts'
export type { ChildrenResult } from '../run/families.ts'
export type { EventOptions, WaitOptions } from './event.ts'
export type { ProcessOptions, ProcessRetention, RunFiles } from './process-options.ts'
export type { Files } from './files.ts'
export type { Json, JsonInput } from '../run/json-normalization.ts'
export type { ProcessChain, ProcessStart } from './process-chain.ts'
export type { StepLog } from './redaction.ts'
export type { RetryPolicy } from '../run/retry-policy.ts'
export type { ScheduleOptions } from '../schedule/schedule.ts'
export { secret, type SettingSchemas, type SettingValues, type StepSettings } from './settings.ts'
export {
  type AnyStep,
  type CallOptions,
  type Child,
  type CreatedObject,
  type CreateOnceOptions,
  type DataOf,
  defineStep,
  type Entered,
  type EntryOptions,
  type ExecuteOptions,
  type InDoubt,
  type InDoubtStep,
  type ItemOutcome,
  type LinkOptions,
  type NamedSteps,
  type ObjectBody,
  type Outcome,
  type ProcessSettings,
  type Progress,
  type Step,
  type StepItem,
  type StepOptions,
  type StepReply,
  type StepResponse,
  type StepResult,
  type Undo,
  type UndoStep,
  type UpdateOptions,
  type When,
} from './step.ts'
export type { RequestContent, StepRequest, TargetRequest } from './step-request.ts'
export {
  defineTarget,
  type SharedTarget,
  type Target,
  type TargetAuth,
  type Targets,
} from './targets.ts'
