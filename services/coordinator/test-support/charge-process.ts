import { z } from 'zod'
import { defineProcess } from '../src/process/definition.ts'
import { defineStep, type Step } from '../src/process/step.ts'

const Charge = z.object({ charge: z.string() })

/** A call that must not be made twice, to a target that can be queried by key. Its address is the initial data. */
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

export const chargeProcess = defineProcess('Charge', {
  retry: { baseMs: 10 },
  steps: { charge, receipt },
})
