/** What the steps of built-in processes share, which are no step functions. */
import { Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import type { z } from 'zod'
import type { StepOutcome } from '../run/progress.ts'
import type { Run } from '../run/run.ts'

export const failed = (errorClass: string, error: string) =>
  ({ kind: 'failed', errorClass, error, response: null }) as const

export const retried = (errorClass: string, error: string) =>
  ({ kind: 'retry', errorClass, error, response: null, retryAfterMs: null }) as const

/**
 * Returns the outcome of a step that threw. An IntegrationError means that the store or the broker is unavailable. Any
 * other error is a bug, and its message may contain business data.
 */
export const outcomeOfError = (error: unknown): StepOutcome =>
  error instanceof IntegrationError
    ? retried(error.code, error.message)
    : retried('step_threw', 'an unexpected error')

/** Calls a step with the company and the initial data of its run. */
export async function ofObject<Data>(
  { Realm: given, InitialData }: Pick<Run, 'Realm' | 'InitialData'>,
  schema: z.ZodType<Data>,
  step: (realm: string, data: Data) => Promise<StepOutcome>,
): Promise<StepOutcome> {
  const data = schema.safeParse(InitialData)
  const realm = Realm.safeParse(given)
  if (!data.success || !realm.success)
    return failed('input_invalid', 'the run names no object of a company')
  return step(realm.data, data.data).catch(outcomeOfError)
}
