/** What process files import: everything that a business process is defined with. */
export { z } from 'zod'
export { defineProcess, type ProcessDefinition, type RunFiles } from './definition.ts'
export type { Json, JsonInput } from './json-normalization.ts'
export { secret } from './settings.ts'
export { defineStep, type Step, type StepItem, type StepReply, type StepResponse } from './step.ts'
export type { StepRequest, TargetRequest } from './step-request.ts'
export type { Target } from './targets.ts'
