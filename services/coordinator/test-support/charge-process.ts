import { z } from 'zod'
import { processOf } from './process-of.ts'
import { defineStep, type Step } from '../src/step/step.ts'

const Charge = z.object({ charge: z.string() })

/**
 * A process whose step must not repeat its call. Its `confirm` queries the target for the charge with the idempotency
 * key of the step. The initial data is the URL of the target.
 */
const charge = defineStep(
  (step: Step<string>) =>
    step.execute(
      { url: `${step.initialData}/charges`, method: 'POST', body: { amount: 66 } },
      { parse: (body) => Charge.parse(body) },
    ),
  {
    confirm: async (step) => {
      const found = await step.find(
        { url: `${step.initialData}/charges/by-key`, query: { key: step.idempotencyKey } },
        { parse: (body) => Charge.parse(body) },
      )
      return found === null ? 'not_done' : step.complete(found.data)
    },
  },
)

const receipt = (step: Step<string, typeof charge>) => step.complete(step.previous.data.charge)

export const chargeProcess = processOf('Charge', {
  retry: { baseMs: 10 },
  steps: { charge, receipt },
})
