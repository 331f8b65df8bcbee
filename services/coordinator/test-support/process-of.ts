import { defineProcess } from '../src/step/define-process.ts'
import type { ProcessDefinition } from '../src/step/definition.ts'
import type { ProcessOptions } from '../src/step/process-options.ts'
import type { NamedSteps } from '../src/step/step.ts'

/** Defines a process whose steps may end without an outcome, and may have any types. */
export function processOf(
  name: string,
  { steps, ...options }: ProcessOptions & { readonly steps: NamedSteps },
): ProcessDefinition {
  let process = defineProcess(name, options) as unknown as AnyChain
  for (const [step, run] of Object.entries(steps)) process = process.step(step, run)
  return process
}

type AnyChain = ProcessDefinition & { step(name: string, run: NamedSteps[string]): AnyChain }
